// Time shift in an unmodified player: hls.js in Chromium starts in the past of a recorded stream, plays, seeks to the
// live end, and notices the end of the stream. MENDCAST names the binary.
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after, before } from 'node:test';
import { closeBrowsers, has, hasBrowser, startBrowser } from './browser.mjs';
import { h264Clip } from './flv.mjs';
import { freePort, start, stopAll, wait } from './programs.mjs';
import { goLive } from './rtmp.mjs';

const BINARY = process.env.MENDCAST;
const missing = (!BINARY && 'MENDCAST names no binary') || (!hasBrowser() && 'no chromium') || (!has('ffmpeg', '-version') && 'no ffmpeg');
/** Seconds between the present and the viewer's start. */
const BACK = 12;

const folder = mkdtempSync(join(tmpdir(), 'mendcast-shift-'));
const pages = createServer((request, response) => {
  const isLibrary = request.url === '/hls.js';
  response.setHeader('content-type', isLibrary ? 'text/javascript' : 'text/html');
  const library = new URL('../node_modules/hls.js/dist/hls.min.js', import.meta.url);
  response.end(isLibrary ? readFileSync(library) : '<!doctype html><script src="/hls.js"></script><body>');
});
let site;
let browser;

/** Plays, and keeps the lag behind the present of the first pictures in seconds, freezes and errors. */
const player = (url) => `(() => {
  const video = document.body.appendChild(Object.assign(document.createElement('video'), { muted: true, width: 400 }));
  const hls = window.hls = new Hls({ enableWorker: false });
  const view = window.view = { video, frozen: [], errors: [], time: 0, ended: false, lag: null, first: null };
  let since = performance.now();
  setInterval(() => {
    const now = performance.now();
    view.lag = hls.playingDate ? (Date.now() - hls.playingDate) / 1_000 : null;
    if (video.currentTime === view.time) return;
    if (view.time > 0 && !video.seeking && !view.sought && now - since > 500) view.frozen.push([view.time, now - since]);
    view.first ??= view.lag;
    [view.time, since] = [video.currentTime, now];
  }, 40);
  video.addEventListener('ended', () => { view.ended = true; });
  hls.on(Hls.Events.ERROR, (_, { details, fatal }) => view.errors.push([details, fatal].join(' ')));
  hls.loadSource(${JSON.stringify(url)});
  hls.attachMedia(video);
  video.play();
})()`;

before(async () => {
  if (missing) return;
  const [port, rtmp] = [await freePort(), await freePort()];
  const config = join(folder, 'edge.toml');
  const record = 'stream = "live/*"\ndirectory = "recordings"\nsegment = "1s"\ntime_shift = "10min"';
  writeFileSync(config, `server.listen = "127.0.0.1:${port}"\nrtmp.listen = "127.0.0.1:${rtmp}"\nlive.cors = "*"\nlive.linger = "1s"\n[[record]]\n${record}\n`);
  const edge = start(BINARY, ['edge', '--config', config]);
  const [, hash] = await edge.says(/spki-list=(\S+)/);
  const publisher = await goLive(rtmp, 'live/demo', h264Clip(folder, { size: '320x180', tone: 440, sampleRate: 48_000, channels: 2 }));
  await edge.says(/live\/demo: published/);
  await new Promise((ready) => pages.listen(0, '127.0.0.1', ready));
  site = { edge, publisher, url: `https://127.0.0.1:${port}/live/demo/index.m3u8`, page: `http://127.0.0.1:${pages.address().port}/` };
  browser = await startBrowser(['--disable-quic', `--ignore-certificate-errors-spki-list=${hash}`]);
});

after(async () => {
  pages.close();
  await site?.publisher.close();
  await closeBrowsers();
  await stopAll();
  rmSync(folder, { recursive: true, force: true });
});

test('hls.js starts in the past, seeks to the live end, and notices the end', { skip: missing, timeout: 120_000 }, async () => {
  // The past must exist.
  await wait((BACK + 6) * 1_000);
  const page = await browser.open(site.page, { width: 500, height: 400, newWindow: true });
  await page.until('window.Hls');
  await page.evaluate(player(`${site.url}?start=-${BACK}`));
  const shown = async () => `${JSON.stringify(await page.evaluate('({ ...view, video: 0 })'), null, 1)}\n${site.edge.said}`;
  const until = (what) => page.until(what, 30_000).catch(async (error) => assert.fail(`${error}: ${await shown()}`));
  await until('view.first !== null');
  const { first } = await page.evaluate('({ first: view.first })');
  assert.ok(first > BACK - 2 && first < BACK + 4, `${first}: ${await shown()}`);
  await wait(6_000);
  let { frozen, errors } = await page.evaluate('({ frozen: view.frozen, errors: view.errors })');
  assert.deepEqual([frozen, errors], [[], []], await shown());
  await page.evaluate('view.sought = true; view.video.currentTime = hls.liveSyncPosition');
  await until('view.lag !== null && view.lag < 8 && !view.video.seeking');
  const at = await page.evaluate('view.video.currentTime');
  await until(`view.video.currentTime > ${at + 2}`);
  await site.publisher.close();
  await until('view.ended');
  ({ errors } = await page.evaluate('({ errors: view.errors })'));
  assert.deepEqual(errors, [], await shown());
  await page.close();
});
