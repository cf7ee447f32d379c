// The two libraries that feed the <video> element, behind one shape:
// `start(video, options) -> { latency(), receivedMbps(), tick(), destroy() }`, where `tick` is to be called a few times a
// second, `receivedMbps` is null where a library does not tell, and `options` is
// `{ url, hlsUrl, latency, onFailure(kind, detail), onComplete() }`. `latency` is what HTTP-FLV is held to behind the
// live edge, in seconds; beyond half as much again it plays faster. `onComplete` means that the response ended
// cleanly: what is buffered still plays. Each library is loaded only when its protocol is asked for.
import { kindOfStatus } from './target.js';

/** How much played media stays in memory, in seconds. */
const KEPT_BEHIND_S = 30;
/** The picture waits this close before a hole, in seconds. */
const NEAR_HOLE_S = 0.1;
/** How far HTTP-FLV plays behind the live edge, in seconds. */
const LATENCY_S = 0.8;

export async function start(protocol, video, options) {
  if (!('MediaSource' in window || 'ManagedMediaSource' in window)) return startNative(video, options);
  // The libraries go on after an event has returned and do not expect to be destroyed inside it.
  const outside = (action) => (...args) => queueMicrotask(() => action(...args));
  const told = { ...options, onFailure: outside(options.onFailure), onComplete: outside(options.onComplete) };
  return protocol === 'hls' ? startHls(video, told) : startFlv(video, told);
}

/** What the browser plays by itself: HLS, on iPhones before iOS 17.1. */
function startNative(video, { hlsUrl, onFailure }) {
  if (!video.canPlayType('application/vnd.apple.mpegurl')) {
    onFailure('unsupported', '');
    return { latency: () => null, receivedMbps: () => null, tick() {}, destroy() {} };
  }
  video.src = hlsUrl;
  return { latency: latencyMeter(video), receivedMbps: () => null, tick() {}, destroy() {} };
}

const libraries = new Map();

/** The library as a global, loaded once for all players. A plain script: both are published that way. */
async function library(name, file) {
  if (!libraries.has(name)) libraries.set(name, loadScript(file));
  await libraries.get(name).catch((error) => {
    // The next attempt asks again.
    libraries.delete(name);
    throw error;
  });
  return window[name];
}

function loadScript(file) {
  return new Promise((resolve, reject) => {
    const script = document.createElement('script');
    script.src = new URL(file, import.meta.url).href;
    script.onload = resolve;
    script.onerror = () => reject(new Error(`${file} cannot be loaded`));
    document.head.append(script);
  });
}

/**
 * How far the picture is behind the newest that could be shown, in seconds; null without a buffer.
 * Media whose clock nobody knows is live when it arrives soonest: the smallest delay between media
 * time and its arrival is taken as none. That stays true while the picture stands, when the buffer
 * alone would say zero. The smallest delay is forgotten by 2 % of the time that passes, in case the
 * publisher's clock is slow or has paused.
 */
function latencyMeter(video) {
  let soonest = -Infinity;
  let before = 0;
  return () => {
    const { buffered } = video;
    if (!buffered.length) return null;
    const now = performance.now() / 1000;
    soonest = Math.max(buffered.end(buffered.length - 1) - now, soonest - 0.02 * (now - before));
    before = now;
    return Math.max(0, now + soonest - video.currentTime);
  };
}

/**
 * Where to go on when playing has come to a hole in what is buffered: behind it; null elsewhere.
 * `ranges` are [start, end] in seconds, and `reached` is the start of the range that playing reached last.
 * An encoder that takes a stream over leaves such a hole. Chromium waits in front of it for a picture that
 * never comes, and only the sound may go on for a while.
 */
export function behindHole(ranges, time, reached) {
  for (let i = ranges.length - 1; i > 0; i -= 1) {
    const [[, hole], [start, end]] = [ranges[i - 1], ranges[i]];
    if (time >= hole - NEAR_HOLE_S && time < end && start > reached) return { start, time: Math.max(start, time) };
    if (time >= start) return null;
  }
  return null;
}

/** Jumps behind the holes that playing comes to, once for each. */
function holeJumper(video) {
  let reached = null;
  return () => {
    const { buffered, currentTime } = video;
    const ranges = Array.from({ length: buffered.length }, (_, i) => [buffered.start(i), buffered.end(i)]);
    reached ??= ranges.find(([start, end]) => currentTime >= start && currentTime <= end)?.[0] ?? null;
    if (reached === null || video.seeking) return;
    const place = behindHole(ranges, currentTime, reached);
    if (!place) return;
    reached = place.start;
    video.currentTime = place.time;
  };
}

async function startFlv(video, { url, latency = LATENCY_S, onFailure, onComplete }) {
  const mpegts = await library('mpegts', 'mpegts.js');
  mpegts.LoggingControl.enableAll = false;
  const player = mpegts.createPlayer(
    { type: 'flv', isLive: true, url },
    {
      isLive: true,
      enableStashBuffer: false,
      lazyLoad: false,
      // Catches up by playing faster, never by jumping: a jump is a visible fault of its own.
      liveSync: true,
      liveSyncMaxLatency: 1.5 * latency,
      liveSyncTargetLatency: latency,
      liveSyncPlaybackRate: 1.2,
      autoCleanupSourceBuffer: true,
      autoCleanupMaxBackwardDuration: 2 * KEPT_BEHIND_S,
      autoCleanupMinBackwardDuration: KEPT_BEHIND_S,
    },
  );
  player.on(mpegts.Events.ERROR, (type, detail, info) => {
    const { ErrorDetails, ErrorTypes } = mpegts;
    const words = info?.msg ?? '';
    if (detail === ErrorDetails.NETWORK_STATUS_CODE_INVALID) onFailure(kindOfStatus(info.code), `HTTP ${info.code}`);
    else if (type === ErrorTypes.NETWORK_ERROR) onFailure('network', words);
    else if (detail === ErrorDetails.MEDIA_CODEC_UNSUPPORTED || detail === ErrorDetails.MEDIA_FORMAT_UNSUPPORTED) onFailure('codec', words);
    else if (/not ?supported|unsupported/i.test(words)) onFailure('codec', words);
    else onFailure('media', words);
  });
  player.on(mpegts.Events.LOADING_COMPLETE, onComplete);
  player.attachMediaElement(video);
  player.load();
  // The library counts in units of 1,024 bytes.
  const receivedMbps = () => (player.statisticsInfo?.speed ?? NaN) * 8.192e-3;
  return { latency: latencyMeter(video), receivedMbps, tick: holeJumper(video), destroy: () => player.destroy() };
}

const HLS_CODEC_ERRORS = ['manifestIncompatibleCodecsError', 'bufferAddCodecError', 'bufferIncompatibleCodecsError'];

async function startHls(video, { url, onFailure }) {
  const Hls = await library('Hls', 'hls.min.js');
  const hls = new Hls({
    lowLatencyMode: true,
    liveDurationInfinity: true,
    maxLiveSyncPlaybackRate: 1.2,
    backBufferLength: KEPT_BEHIND_S,
    // The worker would start from a blob, which the page's policy forbids; fMP4 needs none.
    enableWorker: false,
  });
  hls.on(Hls.Events.ERROR, (_event, { fatal, type, details, response, error }) => {
    if (!fatal) return;
    const status = response?.code ?? 0;
    if (HLS_CODEC_ERRORS.includes(details)) onFailure('codec', error?.message ?? details);
    else if (type === Hls.ErrorTypes.NETWORK_ERROR && status >= 400) onFailure(kindOfStatus(status), `HTTP ${status}`);
    else if (type === Hls.ErrorTypes.NETWORK_ERROR) onFailure('network', details);
    // Its own recovery keeps the tracks that it knows, which may be the very fault.
    else onFailure('media', details);
  });
  hls.loadSource(url);
  hls.attachMedia(video);
  return { latency: () => hls.latency || null, receivedMbps: () => null, tick() {}, destroy: () => hls.destroy() };
}
