// One stream in one <video> element: plays it, starts again after it ended or broke, counts what the viewer saw, and
// posts that to the server as a beacon. What it looks like is the page's matter.
import { start } from './engines.js';
import { FreezeCounter } from './freezes.js';
import { Backoff, describeFailure, mediaUrl } from './target.js';

const BEACON_MS = 5000;
/** No picture for this long with the connection open: the connection is given up. */
const SILENCE_MS = 15_000;
/** After the response's end, media time that stands this long has reached the end of the buffer. */
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
  /** The attempt that plays or tries to: null while stopped or waiting for the next one. */
  #attempt = null;
  #retryTimer = 0;
  #retryAt = 0;
  #firstFrameMs = null;
  /** Frames of earlier attempts: the element's counts start again with each. */
  #earlier = { frames: 0, dropped: 0 };
  #nextHop = '';
  /** Whether the latest beacon was a final one and nothing has played since. */
  #finished = false;
  #beaconAt = performance.now();

  /**
   * `target` as `parseTarget` gives it, from `origin` (the page's own if it is empty), for the viewer of this pass.
   * `latency` is what HTTP-FLV is held to behind the live edge, in seconds. `onMessage(text, button)` is told what keeps
   * the viewer waiting and what a button that calls `begin` is to be called; without arguments that is over.
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
    // The browser, a headset or the system paused it: a live stream does not wait, so it starts anew.
    on('pause', () => {
      if (video.ended) return;
      this.halt('Paused.', 'Play');
      // Browsers pause what is muted and out of sight.
      if (document.hidden) document.addEventListener('visibilitychange', () => this.begin(), { once: true });
    });
    addEventListener('pagehide', () => {
      if (this.#finished) return;
      this.#counter.stop(performance.now());
      // As plain text, which needs no leave: a browser would ask for it with credentials, and those a server that
      // lets all origins in cannot have.
      navigator.sendBeacon(this.#url('/beacon'), JSON.stringify(this.beacon(true)));
    });
    // An endless response has no timing entry before its end, so the latest request to this origin that
    // has one stands for it: with HTTP/2 and 3 it shared the connection.
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

  /** Asks for the stream, unless it plays. */
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
      // Loading the library is the page's time, not the server's.
      current.asked = performance.now();
      this.#video.requestVideoFrameCallback?.(mine((now, frame) => {
        this.#counter.firstFrame(frame.presentationTime ?? now);
        this.#firstFrameMs ??= (frame.presentationTime ?? now) - current.asked;
      }));
      this.#video.play().catch(mine((error) => {
        if (error.name === 'NotAllowedError') this.halt('The browser waits for you to start the video.', 'Play');
      }));
    }).catch(mine((error) => this.#fail('network', error.message)));
  }

  /** Ends the present attempt, if any; the element keeps nothing of it. */
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
    // A broken connection freezes the picture until it returns; once a new attempt failed too, or when
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

  /** Stops on the viewer's or the browser's wish: nothing is loaded until `begin`. */
  halt(text, button) {
    clearTimeout(this.#retryTimer);
    this.#retryAt = 0;
    this.#counter.stop(performance.now());
    this.#tearDown();
    if (!this.#finished) this.#post(true);
    this.#onMessage(text, button);
  }

  /** To be called a few times a second. */
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

  /** Whether the picture stands, also between a connection that broke and the next one. */
  get frozen() {
    return this.#counter.frozen;
  }

  /** Milliseconds until the next attempt; null if there is none to come. */
  retryIn(now) {
    return this.#retryAt ? Math.max(0, this.#retryAt - now) : null;
  }

  /** The freezes so far, as `FreezeCounter` has them. */
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

  /** From the request to the first picture, in milliseconds; null before it. */
  get firstFrameMs() {
    return this.#firstFrameMs;
  }

  /** The protocol of the connection: `h3`, `h2`, …; empty while unknown. */
  get nextHop() {
    return this.#nextHop;
  }

  /** How far the picture is behind the live edge, in seconds; null while unknown. */
  latency() {
    return this.#attempt?.engine?.latency() ?? null;
  }

  /** What has arrived in the last second, in Mbit/s; null while unknown. */
  receivedMbps() {
    return this.#attempt?.engine?.receivedMbps() ?? null;
  }

  /** Media ahead of the picture: how late data may come without a freeze. */
  #bufferMs() {
    const { buffered, currentTime } = this.#video;
    for (let i = 0; i < buffered.length; i += 1) {
      const ahead = buffered.end(i) - currentTime;
      if (buffered.start(i) <= currentTime && ahead >= 0) return Math.round(ahead * 1000);
    }
    return null;
  }

  /** What the server gets: sums since the page was opened, so that the latest beacon tells it all. */
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
