// The player page: plays one stream, starts again after it ended or broke, counts what the viewer
// saw, shows it, and posts it to the server as a beacon. The same object is `window.mendcast`, so
// that a test in a browser reads what the server gets.
import { start } from './engines.js';
import { milliseconds, number, percent, seconds, ABSENT } from './format.js';
import { FreezeCounter } from './freezes.js';
import { Backoff, describeFailure, mediaUrl, parseTarget, protocolName, viewerPass } from './target.js';

const TICK_MS = 250;
const BEACON_MS = 5000;
/** No picture for this long with the connection open: the connection is given up. */
const SILENCE_MS = 15_000;
/** After the response's end, media time that stands this long has reached the end of the buffer. */
const DRAINED_MS = 1500;

const $ = (id) => document.getElementById(id);
const video = $('video');
const counter = new FreezeCounter();
const backoff = new Backoff();

let target = null;
/** How the server knows this page's viewer. */
let viewer = '';
/** The attempt that plays or tries to: null while stopped or waiting for the next one. */
let attempt = null;
let retryTimer = 0;
let retryAt = 0;
let firstFrameMs = null;
/** Frames of earlier attempts: the element's counts start again with each. */
let earlier = { frames: 0, dropped: 0 };
let nextHop = '';
/** Whether the latest beacon was a final one and nothing has played since. */
let finished = false;

function begin() {
  clearTimeout(retryTimer);
  retryAt = 0;
  hideMessage();
  const current = { engine: null, asked: performance.now(), played: false, draining: false, movedAt: performance.now(), mediaTime: 0 };
  attempt = current;
  const mine = (action) => (...args) => attempt === current && action(...args);
  start(target.protocol, video, {
    url: mediaUrl(target, viewer),
    hlsUrl: mediaUrl({ ...target, protocol: 'hls' }, viewer),
    onFailure: mine(fail),
    onComplete: mine(() => { current.draining = true; }),
  }).then((engine) => {
    if (attempt !== current) return engine.destroy();
    current.engine = engine;
    // Loading the library is the page's time, not the server's.
    current.asked = performance.now();
    video.requestVideoFrameCallback?.(mine((now, frame) => {
      counter.firstFrame(frame.presentationTime ?? now);
      firstFrameMs ??= (frame.presentationTime ?? now) - current.asked;
    }));
    video.play().catch(mine((error) => {
      if (error.name === 'NotAllowedError') halt('The browser waits for you to start the video.', 'Play');
    }));
  }).catch(mine((error) => fail('network', error.message)));
}

/** Ends the present attempt, if any; the element keeps nothing of it. */
function tearDown() {
  const { frames, dropped } = frameCounts();
  earlier = { frames, dropped };
  const ending = attempt;
  attempt = null;
  ending?.engine?.destroy();
  video.removeAttribute('src');
  video.load();
}

function fail(kind, detail) {
  const now = performance.now();
  const { text, retry, away } = describeFailure(kind, target, detail);
  // A broken connection freezes the picture until it returns; once a new attempt failed too, or when
  // the stream is gone, the viewer is without a stream rather than frozen.
  if (away || !attempt.played) counter.stop(now);
  else counter.waiting(now);
  if (attempt.played) backoff.reset();
  tearDown();
  if (away && !finished) post(true);
  if (retry) {
    const wait = backoff.next();
    retryAt = now + wait;
    retryTimer = setTimeout(begin, wait);
  }
  showMessage(text, 'Try again now');
}

/** Stops on the viewer's or the browser's wish: nothing is loaded until the button is pressed. */
function halt(text, button) {
  clearTimeout(retryTimer);
  retryAt = 0;
  counter.stop(performance.now());
  tearDown();
  if (!finished) post(true);
  showMessage(text, button);
}

function tick() {
  const now = performance.now();
  counter.tick(now, video.currentTime);
  if (attempt) {
    if (video.currentTime !== attempt.mediaTime) {
      attempt.mediaTime = video.currentTime;
      attempt.movedAt = now;
    }
    attempt.engine?.tick();
    const still = now - attempt.movedAt;
    if (attempt.draining && still > DRAINED_MS) fail('ended', '');
    else if (still > SILENCE_MS) fail('silence', '');
  }
  render(now);
}

function frameCounts() {
  const quality = attempt ? video.getVideoPlaybackQuality?.() : null;
  return {
    frames: earlier.frames + (quality?.totalVideoFrames ?? 0),
    dropped: earlier.dropped + (quality?.droppedVideoFrames ?? 0),
  };
}

/** Media ahead of the picture: how late data may come without a freeze. */
function bufferMs() {
  const { buffered, currentTime } = video;
  for (let i = 0; i < buffered.length; i += 1) {
    const ahead = buffered.end(i) - currentTime;
    if (buffered.start(i) <= currentTime && ahead >= 0) return Math.round(ahead * 1000);
  }
  return null;
}

/** What the server gets: sums since the page was opened, so that the latest beacon tells it all. */
function beacon(final) {
  const { freezes, freezeMs, playedMs } = counter.snapshot(performance.now());
  return {
    viewer,
    stream: target.stream,
    protocol: target.protocol,
    next_hop: nextHop,
    first_frame_ms: firstFrameMs === null ? null : Math.round(firstFrameMs),
    played_s: Math.round(playedMs) / 1000,
    freezes,
    freeze_s: Math.round(freezeMs) / 1000,
    buffer_ms: bufferMs(),
    ...frameCounts(),
    final,
  };
}

function post(final) {
  finished = final;
  const body = JSON.stringify(beacon(final));
  fetch('/beacon', { method: 'POST', body, headers: { 'content-type': 'application/json' }, keepalive: true }).catch(() => {});
}

function showMessage(text, button) {
  $('message-text').textContent = text;
  $('again').textContent = button;
  $('message').hidden = false;
  render(performance.now());
}

function hideMessage() {
  $('message').hidden = true;
}

// ---- figures -------------------------------------------------------------------------------------

const figures = [
  ['Protocol', () => [nextHop || ABSENT, `carries ${protocolName(target.protocol)}`]],
  ['First frame', () => [milliseconds(firstFrameMs), 'from request to picture']],
  ['Freezes', ({ freezes, stalls }) => [number(freezes), `${stalls[2].count} ≥ 0.5 s, ${stalls[3].count} ≥ 1.25 s`]],
  ['Frozen', ({ freezeMs, playedMs }) => [seconds(freezeMs / 1000), playedMs > 0 ? `${percent(freezeMs / (freezeMs + playedMs))} of the time` : '']],
  ['Played', ({ playedMs }) => [seconds(playedMs / 1000), '']],
  ['Behind live', () => [seconds(attempt?.engine?.latency() ?? null), video.playbackRate > 1 && attempt?.played ? `catching up at ${number(video.playbackRate, 1)}×` : '']],
  ['Picture', () => [video.videoWidth ? `${video.videoWidth}×${video.videoHeight}` : ABSENT, '']],
  ['Frames', () => { const { frames, dropped } = frameCounts(); return [number(frames), `${number(dropped)} dropped`]; }],
].map(([title, value]) => {
  const [box, dt, dd, text, small] = ['div', 'dt', 'dd', 'span', 'small'].map((tag) => document.createElement(tag));
  dt.textContent = title;
  dd.append(text, small);
  box.append(dt, dd);
  $('figures').append(box);
  return { value, text, small };
});

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function render(now) {
  const sums = counter.snapshot(now);
  for (const { value, text, small } of figures) {
    const [main, side] = value(sums);
    setText(text, main);
    setText(small, side);
  }
  const state = !attempt ? 'off' : counter.frozen ? 'frozen' : attempt.played ? 'playing' : 'starting';
  $('state').dataset.state = state;
  setText($('state'), state === 'off' ? (retryAt ? 'waiting' : 'stopped') : state);
  setText($('message-next'), retryAt ? `Next attempt in ${Math.max(0, Math.ceil((retryAt - now) / 1000))} s` : '');
  setText($('stop'), attempt || retryAt ? 'Stop' : 'Play');
  setText($('mute'), video.muted ? 'Unmute' : 'Mute');
}

// ---- wiring --------------------------------------------------------------------------------------

const during = (action) => () => attempt && action(performance.now());
video.addEventListener('playing', during((now) => {
  if (!attempt.played) backoff.reset();
  attempt.played = true;
  finished = false;
  counter.playing(now);
}));
video.addEventListener('waiting', during((now) => {
  if (!attempt.draining) counter.waiting(now);
}));
video.addEventListener('ended', during(() => fail('ended', '')));
video.addEventListener('error', during(() => {
  const { code, message } = video.error ?? {};
  fail(code === MediaError.MEDIA_ERR_SRC_NOT_SUPPORTED ? 'codec' : 'media', message ?? '');
}));
// The browser, a headset or the system paused it: a live stream does not wait, so it starts anew.
video.addEventListener('pause', during(() => {
  if (video.ended) return;
  halt('Paused.', 'Play');
  // Browsers pause what is muted and out of sight.
  if (document.hidden) document.addEventListener('visibilitychange', begin, { once: true });
}));

$('mute').addEventListener('click', () => {
  video.muted = !video.muted;
  render(performance.now());
});
$('again').addEventListener('click', begin);
$('stop').addEventListener('click', () => (attempt || retryAt ? halt('Stopped.', 'Play') : begin()));
$('full').addEventListener('click', () => document.fullscreenElement ? document.exitFullscreen() : video.closest('.screen').requestFullscreen());
if (!document.fullscreenEnabled) $('full').hidden = true;

addEventListener('pagehide', () => {
  if (!target || finished) return;
  counter.stop(performance.now());
  navigator.sendBeacon('/beacon', new Blob([JSON.stringify(beacon(true))], { type: 'application/json' }));
});
// Back from the browser's cache of pages the connection is gone and the sums are final.
addEventListener('pageshow', (event) => event.persisted && location.reload());

// An endless response has no timing entry before its end, so the latest request to this origin that
// has one stands for it: with HTTP/2 and 3 it shared the connection.
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) {
    if (entry.nextHopProtocol && new URL(entry.name).origin === location.origin) nextHop = entry.nextHopProtocol;
  }
}).observe({ type: 'resource', buffered: true });

try {
  target = parseTarget(location.search);
  $('stream').textContent = target.stream;
  document.title = `${target.stream} · Mendcast`;
  for (const protocol of ['flv', 'hls']) {
    const link = document.createElement('a');
    const query = new URLSearchParams({ stream: target.stream, protocol });
    for (const [name, value] of target.query) query.append(name, value);
    link.href = `?${query}`;
    link.textContent = protocolName(protocol);
    if (protocol === target.protocol) link.setAttribute('aria-current', 'page');
    $('protocols').append(link);
  }
  Object.defineProperty(window, 'mendcast', { get: () => beacon(finished) });
  video.muted = true;
  viewer = await viewerPass(document, fetch);
  begin();
  setInterval(tick, TICK_MS);
  setInterval(() => attempt && !finished && post(false), BEACON_MS);
} catch (error) {
  $('message-text').textContent = error.message;
  $('message').hidden = false;
  for (const node of document.querySelectorAll('#again, #state, main > :not(.screen)')) node.hidden = true;
}
