// Unmodified hls.js plays Low-Latency HLS without a freeze at any frame rate, key frame interval and latency, because
// parts divide segments evenly. ffmpeg publishes, `mendcast link` delays HTTP/3, and the browser delays HTTP/2. MENDCAST
// names the binary.
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after, before } from 'node:test';
import { fileURLToPath } from 'node:url';
import { closeBrowsers, has, hasBrowser, startBrowser } from './browser.mjs';
import { freePort, start, stopAll, wait } from './programs.mjs';

const BINARY = process.env.MENDCAST;
const HLS_JS = fileURLToPath(new URL('../node_modules/hls.js/dist/hls.min.js', import.meta.url));
const missing = (!BINARY && 'MENDCAST names no binary') || (!hasBrowser() && 'no chromium') || (!has('ffmpeg', '-version') && 'no ffmpeg');
/** Viewing time. Short last parts froze hls.js about once in 24 s. */
const SECONDS = Number(process.env.SECONDS ?? 30);
/** Frame rate, key frame interval in frames, B-frames, and latency in milliseconds. */
const STREAMS = [['30000/1001', 30, 2, 0], ['50', 100, 0, 30], ['25', 50, 0, 60], ['25', 100, 2, 120]];

const folder = mkdtempSync(join(tmpdir(), 'mendcast-parts-'));
const pages = createServer((request, response) => {
  const isScript = request.url === '/hls.js';
  response.setHeader('content-type', isScript ? 'text/javascript' : 'text/html');
  response.end(isScript ? readFileSync(HLS_JS) : '<!doctype html><script src="/hls.js"></script><body>');
});

after(async () => {
  pages.close();
  await closeBrowsers();
  await stopAll();
  rmSync(folder, { recursive: true, force: true });
});

const publish = (rtmp, [rate, group, bFrames], name) => start('ffmpeg', ['-v', 'error', '-re',
  '-f', 'lavfi', '-i', `testsrc2=size=320x180:rate=${rate}`, '-f', 'lavfi', '-i', 'sine=frequency=440:sample_rate=48000',
  '-c:v', 'libx264', '-preset', 'ultrafast', '-g', String(group), '-keyint_min', String(group), '-sc_threshold', '0', '-bf', String(bFrames),
  '-pix_fmt', 'yuv420p', '-b:v', '300k', '-c:a', 'aac', '-f', 'flv', `rtmp://127.0.0.1:${rtmp}/live/${name}`]);

/** Plays URLs with unmodified hls.js, and records when each picture freezes. */
const watch = (urls) => `window.views = ${JSON.stringify(urls)}.map((url) => {
  const video = document.body.appendChild(Object.assign(document.createElement('video'), { muted: true, width: 200 }));
  const view = { frozen: [], time: 0, errors: [] };
  const hls = new Hls();
  hls.on(Hls.Events.ERROR, (_, { details, fatal }) => { if (fatal) view.errors.push(details); });
  hls.loadSource(url);
  hls.attachMedia(video);
  video.play();
  let since = performance.now();
  setInterval(() => {
    const now = performance.now();
    if (video.currentTime !== view.time) {
      if (view.time > 0.5 && now - since > 500) view.frozen.push([view.time.toFixed(2), Math.round(now - since)]);
      [view.time, since] = [video.currentTime, now];
    }
    view.stands = Math.round(now - since);
  }, 40);
  return view;
})`;

/** Asserts that no picture froze during the viewing time. */
async function judge(open) {
  const views = async () => (await Promise.all(open.map((page) => page.evaluate('window.views')))).flat();
  for (const page of open) await page.until('window.views.every((view) => view.time > 0.5)', 30_000);
  const before = (await views()).map((view) => view.time);
  await wait(1_000 * SECONDS);
  const after = await views();
  const shown = JSON.stringify(after.map((view, number) => ({ stream: STREAMS[number], ...view })), null, 1);
  for (const [number, view] of after.entries()) {
    assert.deepEqual([view.frozen, view.errors], [[], []], shown);
    assert.ok(view.stands < 500 && view.time - before[number] > 0.8 * SECONDS, shown);
  }
}

let site;

before(async () => {
  if (missing) return;
  const [port, rtmp] = [await freePort(), await freePort()];
  const config = join(folder, 'edge.toml');
  writeFileSync(config, `server.listen = "127.0.0.1:${port}"\nrtmp.listen = "127.0.0.1:${rtmp}"\nlive.cors = "*"\n`);
  const edge = start(BINARY, ['edge', '--config', config]);
  const [, hash] = await edge.says(/spki-list=(\S+)/);
  for (const [number, stream] of STREAMS.entries()) {
    publish(rtmp, stream, `s${number}`);
    await edge.says(new RegExp(`live/s${number}: published`));
  }
  await new Promise((ready) => pages.listen(0, '127.0.0.1', ready));
  site = { port, trust: `--ignore-certificate-errors-spki-list=${hash}`, page: `http://127.0.0.1:${pages.address().port}/` };
});

test('unmodified hls.js plays over HTTP/3 behind links of 0 to 120 ms without a freeze', { skip: missing, timeout: 100_000 }, async () => {
  const links = await Promise.all(STREAMS.map(async ([, , , rtt]) => {
    const link = await freePort();
    start(BINARY, ['link', '--listen', `127.0.0.1:${link}`, '--to', `127.0.0.1:${site.port}`, '--rate', '20mbps', '--rtt', `${rtt}ms`, '--seed', '1']);
    return link;
  }));
  const browser = await startBrowser([
    `--origin-to-force-quic-on=${links.map((link) => `mendcast.test:${link}`).join(',')}`,
    '--host-resolver-rules=MAP mendcast.test 127.0.0.1',
    site.trust,
  ]);
  const page = await browser.open(site.page, { width: 1000, height: 400 });
  await page.until('window.Hls');
  await page.evaluate(watch(links.map((link, number) => `https://mendcast.test:${link}/live/s${number}/index.m3u8`)));
  await judge([page]);
  await browser.close();
});

test('unmodified hls.js plays over TCP with a delay of 0 to 120 ms without a freeze', { skip: missing, timeout: 100_000 }, async () => {
  const browser = await startBrowser(['--disable-quic', site.trust]);
  const open = [];
  for (const [number, [, , , latency]] of STREAMS.entries()) {
    const page = await browser.open(site.page, { width: 300, height: 300, newWindow: true, latency });
    await page.until('window.Hls');
    await page.evaluate(watch([`https://127.0.0.1:${site.port}/live/s${number}/index.m3u8`]));
    open.push(page);
  }
  await judge(open);
  await browser.close();
});
