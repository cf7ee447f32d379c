// The player page: a stream, its figures, and errors. `window.mendcast` holds the content of the beacon for tests.
import { milliseconds, number, percent, seconds, ABSENT } from './format.js';
import { Playback } from './playback.js';
import { parseTarget, protocolName, viewerPass } from './target.js';

const TICK_MS = 250;

const $ = (id) => document.getElementById(id);
const video = $('video');

let target = null;
let playback = null;

function showMessage(text, button) {
  $('message').hidden = !text;
  if (!text) return;
  $('message-text').textContent = text;
  $('again').textContent = button;
  render(performance.now());
}

function tick() {
  const now = performance.now();
  playback.tick(now);
  render(now);
}

// ---- figures -------------------------------------------------------------------------------------

const figures = [
  ['Protocol', () => [playback.nextHop || ABSENT, `carries ${protocolName(target.protocol)}`]],
  ['First frame', () => [milliseconds(playback.firstFrameMs), 'from request to picture']],
  ['Freezes', ({ freezes, stalls }) => [number(freezes), `${stalls[2].count} ≥ 0.5 s, ${stalls[3].count} ≥ 1.25 s`]],
  ['Frozen', ({ freezeMs, playedMs }) => [seconds(freezeMs / 1000), playedMs > 0 ? `${percent(freezeMs / (freezeMs + playedMs))} of the time` : '']],
  ['Played', ({ playedMs }) => [seconds(playedMs / 1000), '']],
  ['Behind live', () => [seconds(playback.latency()), video.playbackRate > 1 && playback.state === 'playing' ? `catching up at ${number(video.playbackRate, 1)}×` : '']],
  ['Picture', () => [video.videoWidth ? `${video.videoWidth}×${video.videoHeight}` : ABSENT, '']],
  ['Frames', () => { const { frames, dropped } = playback.frames(); return [number(frames), `${number(dropped)} dropped`]; }],
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
  const sums = playback.snapshot(now);
  for (const { value, text, small } of figures) {
    const [main, side] = value(sums);
    setText(text, main);
    setText(small, side);
  }
  const { state } = playback;
  const isOff = state === 'stopped' || state === 'waiting';
  $('state').dataset.state = isOff ? 'off' : state;
  setText($('state'), state);
  const wait = playback.retryIn(now);
  setText($('message-next'), wait === null ? '' : `Next attempt in ${Math.ceil(wait / 1000)} s`);
  setText($('stop'), state === 'stopped' ? 'Play' : 'Stop');
  setText($('mute'), video.muted ? 'Unmute' : 'Mute');
}

// ---- wiring --------------------------------------------------------------------------------------

$('mute').addEventListener('click', () => {
  video.muted = !video.muted;
  render(performance.now());
});
$('again').addEventListener('click', () => playback.begin());
$('stop').addEventListener('click', () => (playback.state === 'stopped' ? playback.begin() : playback.halt('Stopped.', 'Play')));
$('full').addEventListener('click', () => document.fullscreenElement ? document.exitFullscreen() : video.closest('.screen').requestFullscreen());
if (!document.fullscreenEnabled) $('full').hidden = true;

// After a return from the back/forward cache the connection is gone and the sums are final.
addEventListener('pageshow', (event) => event.persisted && location.reload());

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
  video.muted = true;
  playback = new Playback(video, { target, viewer: await viewerPass(document, fetch), onMessage: showMessage });
  Object.defineProperty(window, 'mendcast', { get: () => playback.beacon() });
  playback.begin();
  setInterval(tick, TICK_MS);
} catch (error) {
  $('message-text').textContent = error.message;
  $('message').hidden = false;
  for (const node of document.querySelectorAll('#again, #state, main > :not(.screen)')) node.hidden = true;
}
