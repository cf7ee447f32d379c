// Unmodified hls.js plays a ladder: three renditions and a second language of one ffmpeg, which the edge aligns. It
// switches by command and by the rate of its network, without a freeze. MENDCAST names the binary.
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
/** Width, height, and bit rate of the pictures. */
const RENDITIONS = [[160, 90, '100k'], [320, 180, '400k'], [640, 360, '1200k']];
const WIDTHS = RENDITIONS.map(([width]) => width);
/** Tones of the languages, apart by more than the resolution of the spectrum. */
const [ENGLISH_HZ, FRENCH_HZ] = [440, 3_000];

const folder = mkdtempSync(join(tmpdir(), 'mendcast-ladder-'));
const pages = createServer((request, response) => {
  const isScript = request.url === '/hls.js';
  response.setHeader('content-type', isScript ? 'text/javascript' : 'text/html');
  response.end(isScript ? readFileSync(HLS_JS) : '<!doctype html><script src="/hls.js"></script><body>');
});
let site;
let browser;

const publish = (rtmp) => {
  const inputs = ['-f', 'lavfi', '-i', 'testsrc2=size=640x360:rate=25,noise=alls=20:allf=t', '-f', 'lavfi', '-i', `sine=frequency=${ENGLISH_HZ}:sample_rate=48000`,
    '-f', 'lavfi', '-i', `sine=frequency=${FRENCH_HZ}:sample_rate=48000`];
  const scaled = RENDITIONS.map(([width, height], n) => `[s${n}]scale=${width}:${height}[v${n}]`);
  const filter = `[0:v]split=${RENDITIONS.length}${RENDITIONS.map((_, n) => `[s${n}]`).join('')};${scaled.join(';')}`;
  const outputs = RENDITIONS.flatMap(([width, , rate], n) => ['-map', `[v${n}]`, '-map', '1:a', '-c:v', 'libx264', '-preset', 'ultrafast',
    '-b:v', rate, '-maxrate', rate, '-bufsize', rate, '-g', '50', '-keyint_min', '50', '-sc_threshold', '0', '-bf', '0', '-pix_fmt', 'yuv420p',
    '-c:a', 'aac', '-b:a', '48k', '-f', 'flv', `rtmp://127.0.0.1:${rtmp}/live/show_${width}`]);
  const french = ['-map', '2:a', '-c:a', 'aac', '-b:a', '48k', '-f', 'flv', `rtmp://127.0.0.1:${rtmp}/live/show_fr`];
  return start('ffmpeg', ['-v', 'error', '-re', ...inputs, '-filter_complex', filter, ...outputs, ...french]);
};

/** Plays a URL, and records freezes, jumps and errors. */
const watch = (url) => `(() => {
  const video = document.body.appendChild(Object.assign(document.createElement('video'), { muted: true, width: 400 }));
  const view = window.view = { frozen: [], jumps: [], time: 0, errors: [] };
  const hls = window.hls = new Hls({ enableWorker: false });
  // hls.js reports requests that it gives up for a switch as errors, too.
  hls.on(Hls.Events.ERROR, (_, { details, fatal, response }) => details === 'aborted' || view.errors.push([details, fatal, response?.code ?? 0].join(' ')));
  hls.loadSource(${JSON.stringify(url)});
  hls.attachMedia(video);
  video.play();
  let since = performance.now();
  setInterval(() => {
    const now = performance.now();
    view.width = video.videoWidth;
    if (video.currentTime === view.time) return;
    if (view.time > 0.5 && now - since > 500) view.frozen.push([view.time.toFixed(2), Math.round(now - since)]);
    const step = video.currentTime - view.time;
    if (view.time > 0.5 && (step < 0 || step > 0.6)) view.jumps.push(step.toFixed(2));
    [view.time, since] = [video.currentTime, now];
  }, 40);
})()`;

/** Start times that differ between levels for a segment with the same number. */
const misaligned = `(() => {
  const starts = new Map();
  let compared = 0;
  const wrong = [];
  for (const { details } of hls.levels) {
    for (const { sn, start } of details?.fragments ?? []) {
      if (!starts.has(sn)) starts.set(sn, start);
      else if (Math.abs(starts.get(sn) - start) > 0.02) wrong.push([sn, starts.get(sn), start]);
      else compared += 1;
    }
  }
  return { compared, wrong };
})()`;

before(async () => {
  if (missing) return;
  const [port, rtmp] = [await freePort(), await freePort()];
  const config = join(folder, 'edge.toml');
  const renditions = WIDTHS.map((width) => `"live/show_${width}"`).join(', ');
  writeFileSync(config, `server.listen = "127.0.0.1:${port}"\nrtmp.listen = "127.0.0.1:${rtmp}"\nlive.cors = "*"\n[[ladder]]\nname = "live/show"\nrenditions = [${renditions}]\naudio = ["en English: live/show_160", "fr Français: live/show_fr"]\n`);
  const edge = start(BINARY, ['edge', '--config', config]);
  const [, hash] = await edge.says(/spki-list=(\S+)/);
  publish(rtmp);
  for (const name of [...WIDTHS, 'fr']) await edge.says(new RegExp(`live/show_${name}: published`));
  await new Promise((ready) => pages.listen(0, '127.0.0.1', ready));
  site = { edge, url: `https://127.0.0.1:${port}/live/show/index.m3u8`, page: `http://127.0.0.1:${pages.address().port}/` };
  // The browser limits the rate of TCP only.
  browser = await startBrowser(['--disable-quic', `--ignore-certificate-errors-spki-list=${hash}`]);
});

after(async () => {
  pages.close();
  await closeBrowsers();
  await stopAll();
  rmSync(folder, { recursive: true, force: true });
});

async function play() {
  const page = await browser.open(site.page, { width: 500, height: 400, newWindow: true });
  await page.until('window.Hls');
  await page.evaluate(watch(site.url));
  await page.until('window.view.time > 3', 40_000);
  // Not the start, at which a busy machine may freeze the player: it has a second of media then.
  await page.evaluate('Object.assign(view, { frozen: [], jumps: [], errors: [] })');
  return page;
}

const shown = async (page) => `${JSON.stringify(await page.evaluate('window.view'), null, 1)}\n${site.edge.said}`;

test('hls.js switches between renditions by command without a freeze or a jump', { skip: missing, timeout: 120_000 }, async () => {
  const page = await play();
  assert.equal(await page.evaluate('hls.levels.length'), 3);
  for (const level of [2, 0, 1, 2]) {
    await page.evaluate(`hls.nextLevel = ${level}`);
    await page.until(`view.width === ${WIDTHS[level]}`, 20_000).catch(async (error) => assert.fail(`${error}: ${await shown(page)}`));
    await wait(2_000);
  }
  const { frozen, jumps, errors } = await page.evaluate('window.view');
  assert.deepEqual([frozen, jumps, errors], [[], [], []], await shown(page));
  const { compared, wrong } = await page.evaluate(misaligned);
  assert.deepEqual(wrong, []);
  assert.ok(compared >= 3, `${compared} segments compared`);
  assert.doesNotMatch(site.edge.said, /no other rendition/);
  await page.close();
});

test('hls.js changes the language without a freeze', { skip: missing, timeout: 120_000 }, async () => {
  const page = await play();
  const tracks = await page.evaluate('hls.audioTracks.map(({ name, lang }) => [name, lang])');
  assert.deepEqual(tracks, [['English', 'en'], ['Français', 'fr']], await shown(page));
  // The strongest tone, in Hz.
  await page.evaluate(`(() => {
    const context = new AudioContext();
    const analyser = Object.assign(context.createAnalyser(), { fftSize: 2048, smoothingTimeConstant: 0 });
    const video = document.querySelector('video');
    video.muted = false;
    context.createMediaElementSource(video).connect(analyser);
    const bins = new Float32Array(analyser.frequencyBinCount);
    window.tone = () => {
      analyser.getFloatFrequencyData(bins);
      return bins.indexOf(Math.max(...bins)) * context.sampleRate / analyser.fftSize;
    };
    return context.resume();
  })()`);
  const heard = async (hz) => page.until(`Math.abs(tone() - ${hz}) < 100`, 20_000)
    .catch(async (error) => assert.fail(`${error}: ${hz} Hz, got ${await page.evaluate('tone()')}: ${await shown(page)}`));
  await heard(ENGLISH_HZ);
  for (const [track, hz] of [[1, FRENCH_HZ], [0, ENGLISH_HZ], [1, FRENCH_HZ]]) {
    // hls.js 1.7.4 may load the segment at the playhead again from another rendition if the language changes just
    // after a switch. It then appends parts out of order, and Chromium drops them up to the next key frame.
    await page.until('hls.currentLevel === hls.loadLevel', 20_000).catch(async (error) => assert.fail(`${error}: ${await shown(page)}`));
    await page.evaluate(`hls.audioTrack = ${track}`);
    await heard(hz);
    await wait(2_000);
  }
  const { frozen, jumps, errors } = await page.evaluate('window.view');
  assert.deepEqual([frozen, jumps, errors], [[], [], []], await shown(page));
  await page.close();
});

test('hls.js follows the rate of its network up and down', { skip: missing, timeout: 180_000 }, async () => {
  const page = await play();
  await page.until('hls.currentLevel === 2', 60_000).catch(async (error) => assert.fail(`${error}: ${await shown(page)}`));
  await page.throttle(35_000);
  await page.until('view.width === 160', 60_000).catch(async (error) => assert.fail(`${error}: ${await shown(page)}`));
  await page.throttle(-1);
  await page.until('view.width > 160', 60_000).catch(async (error) => assert.fail(`${error}: ${await shown(page)}`));
  const fatal = await page.evaluate('view.errors.filter((error) => error.includes("true"))');
  assert.deepEqual(fatal, [], await shown(page));
  await page.close();
});
