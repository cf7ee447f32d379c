// One encoder connection with three video tracks, in the packets of OBS, plays in unmodified players: hls.js and mpegts.js
// in Chromium, ffmpeg, and GStreamer if it is installed. MENDCAST names the binary.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after, before } from 'node:test';
import { promisify } from 'node:util';
import { closeBrowsers, has, hasBrowser, startBrowser } from './browser.mjs';
import { asTrack, h264Clip, VIDEO } from './flv.mjs';
import { freePort, start, stopAll, wait } from './programs.mjs';
import { goLive } from './rtmp.mjs';

const BINARY = process.env.MENDCAST;
const missing = (!BINARY && 'MENDCAST names no binary') || (!hasBrowser() && 'no chromium') || (!has('ffmpeg', '-version') && 'no ffmpeg');
const noGStreamer = missing || (!has('gst-launch-1.0', '--version') && 'no GStreamer');
const SIZES = ['640x360', '320x180', '160x90'];
const WIDTHS = SIZES.map((size) => Number.parseInt(size, 10));
const LIBRARIES = { '/hls.js': 'hls.js/dist/hls.min.js', '/mpegts.js': 'mpegts.js/dist/mpegts.js' };

const folder = mkdtempSync(join(tmpdir(), 'mendcast-multitrack-'));
const pages = createServer((request, response) => {
  const library = LIBRARIES[request.url];
  response.setHeader('content-type', library ? 'text/javascript' : 'text/html');
  const scripts = Object.keys(LIBRARIES).map((url) => `<script src="${url}"></script>`).join('');
  response.end(library ? readFileSync(new URL(`../node_modules/${library}`, import.meta.url)) : `<!doctype html>${scripts}<body>`);
});
let site;
let browser;

/** A video element that records its freezes, and errors of its player. */
const PLAYER = `
  const video = document.body.appendChild(Object.assign(document.createElement('video'), { muted: true, width: 400 }));
  const view = window.view = { frozen: [], errors: [], time: 0, widths: [] };
  let since = performance.now();
  setInterval(() => {
    const now = performance.now();
    if (video.videoWidth && view.widths.at(-1) !== video.videoWidth) view.widths.push(video.videoWidth);
    if (video.currentTime === view.time) return;
    if (view.time > 0.5 && now - since > 500) view.frozen.push([view.time.toFixed(2), Math.round(now - since)]);
    [view.time, since] = [video.currentTime, now];
  }, 40);`;

const hlsPlayer = (url) => `(() => {
  ${PLAYER}
  const hls = window.hls = new Hls({ enableWorker: false });
  hls.on(Hls.Events.ERROR, (_, { details, fatal }) => view.errors.push([details, fatal].join(' ')));
  hls.loadSource(${JSON.stringify(url)});
  hls.attachMedia(video);
  video.play();
})()`;

const flvPlayer = (url) => `(() => {
  ${PLAYER}
  const player = mpegts.createPlayer({ type: 'flv', isLive: true, url: ${JSON.stringify(url)} }, { enableWorker: false });
  player.on(mpegts.Events.ERROR, (...what) => view.errors.push(what.join(' ')));
  player.attachMediaElement(video);
  player.load();
  player.play();
})()`;

before(async () => {
  if (missing) return;
  const [port, rtmp] = [await freePort(), await freePort()];
  const config = join(folder, 'edge.toml');
  writeFileSync(config, `server.listen = "127.0.0.1:${port}"\nrtmp.listen = "127.0.0.1:${rtmp}"\nlive.cors = "*"\n[[ladder]]\nname = "live/show"\nrenditions = ["live/show_*"]\nmultitrack = true\n`);
  const edge = start(BINARY, ['edge', '--config', config]);
  const [, hash] = await edge.says(/spki-list=(\S+)/);
  const clips = SIZES.map((size) => h264Clip(folder, { size, tone: 440, sampleRate: 48_000, channels: 2 }));
  const publisher = await goLive(rtmp, 'live/show', clips[0]);
  for (const id of [1, 2]) {
    // Their audio is audio track 1, like the VOD track of OBS.
    publisher.add(clips[id], (tag) => asTrack(tag, tag.kind === VIDEO ? id : 1));
  }
  for (const id of [0, 1, 2]) await edge.says(new RegExp(id ? `live/show_${id}: published as track` : 'live/show: published'));
  await new Promise((ready) => pages.listen(0, '127.0.0.1', ready));
  site = { edge, publisher, base: `https://127.0.0.1:${port}/live/show`, page: `http://127.0.0.1:${pages.address().port}/` };
  browser = await startBrowser(['--disable-quic', `--ignore-certificate-errors-spki-list=${hash}`]);
});

after(async () => {
  pages.close();
  await site?.publisher.close();
  await closeBrowsers();
  await stopAll();
  rmSync(folder, { recursive: true, force: true });
});

async function play(script) {
  const page = await browser.open(site.page, { width: 500, height: 400, newWindow: true });
  await page.until('window.Hls && window.mpegts');
  await page.evaluate(script);
  await page.until('window.view.time > 3', 40_000).catch(async (error) => assert.fail(`${error}: ${await shown(page)}`));
  return page;
}

const shown = async (page) => `${JSON.stringify(await page.evaluate('window.view'), null, 1)}\n${site.edge.said}`;

test('hls.js switches between the tracks of one connection without a freeze', { skip: missing, timeout: 120_000 }, async () => {
  const page = await play(hlsPlayer(`${site.base}/index.m3u8`));
  const widths = await page.evaluate('hls.levels.map(({ width }) => width)');
  assert.deepEqual(widths.toSorted((a, b) => b - a), WIDTHS);
  for (const width of [WIDTHS[2], WIDTHS[0], WIDTHS[1], WIDTHS[0]]) {
    await page.evaluate(`hls.nextLevel = hls.levels.findIndex((level) => level.width === ${width})`);
    await page.until(`view.widths.at(-1) === ${width}`, 20_000).catch(async (error) => assert.fail(`${error}: ${await shown(page)}`));
    await wait(2_000);
  }
  const { frozen, errors } = await page.evaluate('window.view');
  assert.deepEqual([frozen, errors], [[], []], await shown(page));
  await page.close();
});

test('mpegts.js plays the ladder', { skip: missing, timeout: 120_000 }, async () => {
  const page = await play(flvPlayer(`${site.base}.flv`));
  await page.until('window.view.time > 8', 40_000);
  const { frozen, errors, widths } = await page.evaluate('window.view');
  assert.deepEqual([frozen, errors], [[], []], await shown(page));
  assert.ok(widths.length > 0 && widths.every((width) => WIDTHS.includes(width)), `${widths}`);
  await page.close();
});

test('ffmpeg finds and decodes three variants', { skip: missing, timeout: 60_000 }, async () => {
  const run = promisify(execFile);
  const url = `${site.base}/index.m3u8`;
  const { stdout } = await run('ffprobe', ['-v', 'error', '-tls_verify', '0', '-show_entries', 'stream=codec_name,width', '-of', 'json', url]);
  const streams = JSON.parse(stdout).streams.filter(({ codec_name: codec }) => codec === 'h264');
  assert.deepEqual([...new Set(streams.map(({ width }) => width))].toSorted((a, b) => b - a), WIDTHS, stdout);
  for (const place of [url, `${site.base}.flv`]) {
    const { stderr } = await run('ffmpeg', ['-v', 'error', '-tls_verify', '0', '-i', place, '-t', '4', '-f', 'null', '-']);
    assert.equal(stderr, '', place);
  }
});

test('GStreamer plays the ladder', { skip: noGStreamer, timeout: 60_000 }, async () => {
  const source = ['souphttpsrc', 'ssl-strict=false', `location=${site.base}.flv`, '!', 'flvdemux', 'name=demux'];
  const video = ['demux.video', '!', 'queue', '!', 'h264parse', '!', 'avdec_h264', '!', 'identity', 'eos-after=75', '!', 'fakesink'];
  const { stderr } = await promisify(execFile)('gst-launch-1.0', ['-q', ...source, ...video], { timeout: 40_000 });
  assert.doesNotMatch(stderr, /ERROR|CRITICAL/);
});
