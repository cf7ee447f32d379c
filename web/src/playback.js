// One stream in one <video> element: plays it, restarts it after an end or an error, counts freezes, and posts beacons to
// the server. The page defines its appearance.
import { start } from './engines.js';
import { FreezeCounter } from './freezes.js';
import { Backoff, describeFailure, mediaUrl } from './target.js';

const BEACON_MS = 5000;
/** Time without a picture after which an open connection is abandoned. */
const SILENCE_MS = 15_000;
/** After the end of the response, stop of media time that means the end of the buffer. */
const DRAINED_MS = 1500;

export class Playback {
  #video;
  #target;
  #origin;
  #viewer;
  #latency;
  #onMessage;
  #counter = new FreezeCounter();
  #backoff = new Backoff();
  /** The current attempt; null while stopped or waiting for the next one. */
  #attempt = null;
  #retryTimer = 0;
  #retryAt = 0;
  #firstFrameMs = null;
  /** Frames of earlier attempts, because the element's counts restart with each. */
  #earlier = { frames: 0, dropped: 0 };
  #nextHop = '';
  /** Whether the latest beacon was final and nothing was played since. */
  #finished = false;
  #beaconAt = performance.now();

  /**
   * Plays `target` (of `parseTarget`) from `origin` (if empty, the page's) with the viewer's pass. `latency` is the
   * target delay of HTTP-FLV behind the live edge, in seconds. `onMessage(text, button)` receives the reason of a wait
   * and the label of a button that calls `begin`; without arguments the wait is over.
   */
  constructor(video, { target, origin = '', viewer, latency, onMessage }) {
    this.#video = video;
    this.#target = target;
    this.#origin = origin;
    this.#viewer = viewer;
    this.#latency = latency;
    this.#onMessage = onMessage;
    const during = (action) => () => this.#attempt && action(performance.now());
    const on = (event, action) => video.addEventListener(event, during(action));
    on('playing', (now) => {
      if (!this.#attempt.played) this.#backoff.reset();
      this.#attempt.played = true;
      this.#finished = false;
      this.#counter.playing(now);
    });
    on('waiting', (now) => {
      if (!this.#attempt.draining) this.#counter.waiting(now);
    });
    on('ended', () => this.#fail('ended', ''));
    on('error', () => {
      const { code, message } = video.error ?? {};
      this.#fail(code === MediaError.MEDIA_ERR_SRC_NOT_SUPPORTED ? 'codec' : 'media', message ?? '');
    });
    // Paused by the browser, a headset or the system. A live stream does not wait, so `Play` restarts it.
    on('pause', () => {
      if (video.ended) return;
      this.halt('Paused.', 'Play');
      // Browsers pause muted videos that are not visible.
      if (document.hidden) document.addEventListener('visibilitychange', () => this.begin(), { once: true });
    });
    addEventListener('pagehide', () => {
      if (this.#finished) return;
      this.#counter.stop(performance.now());
      // Plain text needs no CORS preflight. Other types would need one with credentials, which a server that
      // allows all origins must not accept.
      navigator.sendBeacon(this.#url('/beacon'), JSON.stringify(this.beacon(true)));
    });
    // An endless response has no timing entry before its end. So use the latest request to this origin that
    // has one: with HTTP/2 and 3 both share a connection.
    const own = origin || location.origin;
    new PerformanceObserver((list) => {
      for (const entry of list.getEntries()) {
        if (entry.nextHopProtocol && new URL(entry.name).origin === own) this.#nextHop = entry.nextHopProtocol;
      }
    }).observe({ type: 'resource', buffered: true });
  }

  #url(path) {
    return this.#origin + path;
  }

  /** Requests the stream unless it is playing. */
  begin() {
    clearTimeout(this.#retryTimer);
    if (this.#attempt) return;
    this.#retryAt = 0;
    this.#onMessage();
    const current = { engine: null, asked: performance.now(), played: false, draining: false, movedAt: performance.now(), mediaTime: 0 };
    this.#attempt = current;
    const mine = (action) => (...args) => this.#attempt === current && action(...args);
    start(this.#target.protocol, this.#video, {
      url: this.#url(mediaUrl(this.#target, this.#viewer)),
      hlsUrl: this.#url(mediaUrl({ ...this.#target, protocol: 'hls' }, this.#viewer)),
      latency: this.#latency,
      onFailure: mine((kind, detail) => this.#fail(kind, detail)),
      onComplete: mine(() => { current.draining = true; }),
    }).then((engine) => {
      if (this.#attempt !== current) return engine.destroy();
      current.engine = engine;
      // The time to load the library does not count towards the first frame.
      current.asked = performance.now();
      this.#video.requestVideoFrameCallback?.(mine((now, frame) => {
        this.#counter.firstFrame(frame.presentationTime ?? now);
        this.#firstFrameMs ??= (frame.presentationTime ?? now) - current.asked;
      }));
      this.#video.play().catch(mine((error) => {
        if (error.name === 'NotAllowedError') this.halt('The browser needs a click to start the video.', 'Play');
      }));
    }).catch(mine((error) => this.#fail('network', error.message)));
  }

  /** Ends the current attempt, if any, and resets the element. */
  #tearDown() {
    this.#earlier = this.frames();
    const ending = this.#attempt;
    this.#attempt = null;
    ending?.engine?.destroy();
    this.#video.removeAttribute('src');
    this.#video.load();
  }

  #fail(kind, detail) {
    const now = performance.now();
    const { text, retry, away } = describeFailure(kind, this.#target, detail);
    // A broken connection freezes the picture until it returns. If a second attempt fails too, or
    // the stream is gone, the viewer is without a stream rather than frozen.
    if (away || !this.#attempt.played) this.#counter.stop(now);
    else this.#counter.waiting(now);
    if (this.#attempt.played) this.#backoff.reset();
    this.#tearDown();
    if (away && !this.#finished) this.#post(true);
    if (retry) {
      const wait = this.#backoff.next();
      this.#retryAt = now + wait;
      this.#retryTimer = setTimeout(() => this.begin(), wait);
    }
    this.#onMessage(text, 'Try again now');
  }

  /** Stops at the request of the viewer or the browser, until `begin`. */
  halt(text, button) {
    clearTimeout(this.#retryTimer);
    this.#retryAt = 0;
    this.#counter.stop(performance.now());
    this.#tearDown();
    if (!this.#finished) this.#post(true);
    this.#onMessage(text, button);
  }

  /** Call a few times per second. */
  tick(now) {
    const { currentTime } = this.#video;
    this.#counter.tick(now, currentTime);
    if (!this.#attempt) return;
    const attempt = this.#attempt;
    if (currentTime !== attempt.mediaTime) {
      attempt.mediaTime = currentTime;
      attempt.movedAt = now;
    }
    attempt.engine?.tick();
    const still = now - attempt.movedAt;
    if (attempt.draining && still > DRAINED_MS) this.#fail('ended', '');
    else if (still > SILENCE_MS) this.#fail('silence', '');
    else if (now - this.#beaconAt >= BEACON_MS && !this.#finished) this.#post(false);
  }

  /** `playing`, `frozen`, `starting`, `waiting` (for the next attempt) or `stopped`. */
  get state() {
    if (!this.#attempt) return this.#retryAt ? 'waiting' : 'stopped';
    if (this.#counter.frozen) return 'frozen';
    return this.#attempt.played ? 'playing' : 'starting';
  }

  /** Whether the picture is frozen, including the time between two connections. */
  get frozen() {
    return this.#counter.frozen;
  }

  /** Milliseconds until the next attempt; null without one. */
  retryIn(now) {
    return this.#retryAt ? Math.max(0, this.#retryAt - now) : null;
  }

  /** Freezes, as counted by `FreezeCounter`. */
  snapshot(now) {
    return this.#counter.snapshot(now);
  }

  /** Frames decoded and dropped. */
  frames() {
    const quality = this.#attempt ? this.#video.getVideoPlaybackQuality?.() : null;
    return {
      frames: this.#earlier.frames + (quality?.totalVideoFrames ?? 0),
      dropped: this.#earlier.dropped + (quality?.droppedVideoFrames ?? 0),
    };
  }

  /** Time from the request to the first picture, in milliseconds; null before it. */
  get firstFrameMs() {
    return this.#firstFrameMs;
  }

  /** The protocol of the connection: `h3`, `h2`, …; empty while unknown. */
  get nextHop() {
    return this.#nextHop;
  }

  /** Delay behind the live edge in seconds; null if unknown. */
  latency() {
    return this.#attempt?.engine?.latency() ?? null;
  }

  /** Receive rate of the last second in Mbit/s; null if unknown. */
  receivedMbps() {
    return this.#attempt?.engine?.receivedMbps() ?? null;
  }

  /** Buffered media: the delay that causes no freeze yet. */
  #bufferMs() {
    const { buffered, currentTime } = this.#video;
    for (let i = 0; i < buffered.length; i += 1) {
      const ahead = buffered.end(i) - currentTime;
      if (buffered.start(i) <= currentTime && ahead >= 0) return Math.round(ahead * 1000);
    }
    return null;
  }

  /** Content of a beacon: sums since the page was opened, so that the latest beacon suffices. */
  beacon(final = this.#finished) {
    const { freezes, freezeMs, playedMs } = this.#counter.snapshot(performance.now());
    return {
      viewer: this.#viewer,
      stream: this.#target.stream,
      protocol: this.#target.protocol,
      next_hop: this.#nextHop,
      first_frame_ms: this.#firstFrameMs === null ? null : Math.round(this.#firstFrameMs),
      played_s: Math.round(playedMs) / 1000,
      freezes,
      freeze_s: Math.round(freezeMs) / 1000,
      buffer_ms: this.#bufferMs(),
      ...this.frames(),
      final,
    };
  }

  #post(final) {
    this.#finished = final;
    this.#beaconAt = performance.now();
    const body = JSON.stringify(this.beacon(final));
    fetch(this.#url('/beacon'), { method: 'POST', body, headers: { 'content-type': 'application/json' }, keepalive: true }).catch(() => {});
  }
}
