// One interface to the two libraries that feed the <video> element:
// `start(video, options) -> { latency(), receivedMbps(), tick(), destroy() }`. Call `tick` a few times per second.
// `receivedMbps` is null if the library does not report it. `options` is
// `{ url, hlsUrl, latency, onFailure(kind, detail), onComplete() }`. `latency` is the target delay of HTTP-FLV behind the
// live edge, in seconds; above 1.5 times this value it plays faster. `onComplete` means that the response ended cleanly;
// buffered media still plays. Each library is loaded when its protocol is first requested.
import { kindOfStatus } from './target.js';

/** Played media kept in memory, in seconds. */
const KEPT_BEHIND_S = 30;
/** Distance from a gap at which playback stalls, in seconds. */
const NEAR_HOLE_S = 0.1;
/** Default delay of HTTP-FLV behind the live edge, in seconds. */
const LATENCY_S = 0.8;

export async function start(protocol, video, options) {
  if (!('MediaSource' in window || 'ManagedMediaSource' in window)) return startNative(video, options);
  // The libraries continue after an event handler returns, so they must not be destroyed in it.
  const outside = (action) => (...args) => queueMicrotask(() => action(...args));
  const told = { ...options, onFailure: outside(options.onFailure), onComplete: outside(options.onComplete) };
  return protocol === 'hls' ? startHls(video, told) : startFlv(video, told);
}

/** Native playback: HLS on iPhones before iOS 17.1. */
function startNative(video, { hlsUrl, onFailure }) {
  if (!video.canPlayType('application/vnd.apple.mpegurl')) {
    onFailure('unsupported', '');
    return { latency: () => null, receivedMbps: () => null, tick() {}, destroy() {} };
  }
  video.src = hlsUrl;
  return { latency: latencyMeter(video), receivedMbps: () => null, tick() {}, destroy() {} };
}

const libraries = new Map();

/** Loads the library once for all players, as a script that defines a global: both are published like this. */
async function library(name, file) {
  if (!libraries.has(name)) libraries.set(name, loadScript(file));
  await libraries.get(name).catch((error) => {
    // The next attempt requests it again.
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
 * Delay of the picture behind the live edge, in seconds; null without a buffer. The clock of the
 * media is unknown, so the smallest difference between media time and arrival counts as no delay.
 * Unlike the buffer level, this also works while the picture is frozen. The smallest difference
 * grows by 2 % of the elapsed time, in case the publisher's clock is slow or has paused.
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
 * Position after a gap in the buffer if playback has reached it, else null. `ranges` are [start, end]
 * in seconds; `reached` is the start of the newest range reached by playback. A new encoder of a stream
 * leaves such a gap. Chromium waits at it for a picture that never arrives, while audio may continue.
 */
export function behindHole(ranges, time, reached) {
  for (let i = ranges.length - 1; i > 0; i -= 1) {
    const [[, hole], [start, end]] = [ranges[i - 1], ranges[i]];
    if (time >= hole - NEAR_HOLE_S && time < end && start > reached) return { start, time: Math.max(start, time) };
    if (time >= start) return null;
  }
  return null;
}

/** Skips each gap that playback reaches, once. */
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
      // Catches up by playing faster, because jumps are visible.
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
  // The library counts in KiB.
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
    // The worker would be a blob, which the Content-Security-Policy forbids; fMP4 needs no worker.
    enableWorker: false,
  });
  hls.on(Hls.Events.ERROR, (_event, { fatal, type, details, response, error }) => {
    if (!fatal) return;
    const status = response?.code ?? 0;
    if (HLS_CODEC_ERRORS.includes(details)) onFailure('codec', error?.message ?? details);
    else if (type === Hls.ErrorTypes.NETWORK_ERROR && status >= 400) onFailure(kindOfStatus(status), `HTTP ${status}`);
    else if (type === Hls.ErrorTypes.NETWORK_ERROR) onFailure('network', details);
    // The library's recovery keeps its tracks, which may be the cause of the error.
    else onFailure('media', details);
  });
  hls.loadSource(url);
  hls.attachMedia(video);
  return { latency: () => hls.latency || null, receivedMbps: () => null, tick() {}, destroy: () => hls.destroy() };
}
