// Changes of a stream's tracks during playback: early audio, camera off, another encoder, several tracks. In an
// unmodified Chromium, playback must continue for present and later viewers: in the player page over HTTP-FLV and
// Low-Latency HLS, and in a bare page with hls.js without partial segments.
//
// MENDCAST names the binary (`make e2e-tracks`). CAMERA_OFF is the time without camera in seconds.
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { closeBrowsers, has, hasBrowser, startBrowser } from './browser.mjs';
import { asManyTracks, asTrack, av1Clip, h264Clip } from './flv.mjs';
import { freePort, start, stopAll, wait } from './programs.mjs';
import { goLive } from './rtmp.mjs';
import { WATCH } from './watch.mjs';

const BINARY = process.env.MENDCAST;
const PICTURES = process.env.PICTURES;
const CAMERA_OFF_S = Number(process.env.CAMERA_OFF ?? 12);
const missing = (!BINARY && 'MENDCAST names no binary') || (!hasBrowser() && 'no chromium') || (!has('ffmpeg', '-version') && 'no ffmpeg');
/** Maximum freeze in milliseconds, unless a test states another one. */
const STILL = 2_000;
const TIMEOUT = { timeout: 120_000 + 1000 * CAMERA_OFF_S };

const folder = mkdtempSync(join(tmpdir(), 'mendcast-tracks-'));
let site;
let clips;
let browser;
let bare;
const publishers = new Set();
const watching = new Set();

/** A page with hls.js, as in its documentation, without low-latency mode. */
const BARE_PAGE = `<!doctype html><meta charset="utf-8"><title>hls.js</title><video muted autoplay style="width:100%"></video>
<script src="hls.js"></script>
<script>
  const video = document.querySelector('video');
  const hls = new Hls({ lowLatencyMode: false, enableWorker: false });
  window.faults = [];
  hls.on(Hls.Events.ERROR, (_event, { fatal, type, details, error }) => {
    window.faults.push([fatal ? 'fatal' : 'light', details, error?.message].join(' '));
    if (fatal && type === Hls.ErrorTypes.MEDIA_ERROR) hls.recoverMediaError();
  });
  hls.loadSource(decodeURIComponent(location.hash.slice(1)));
  hls.attachMedia(video);
</script>`;

async function serveBarePage() {
  const library = readFileSync(new URL('../node_modules/hls.js/dist/hls.js', import.meta.url));
  const server = createServer((request, response) => {
    const script = request.url === '/hls.js';
    response.writeHead(200, { 'content-type': script ? 'text/javascript' : 'text/html' }).end(script ? library : BARE_PAGE);
  }).listen(0, '127.0.0.1');
  await new Promise((done) => server.once('listening', done));
  return server;
}

before(async () => {
  if (missing) return;
  const [port, rtmp] = [await freePort(), await freePort()];
  site = { port, rtmp };
  const config = join(folder, 'edge.toml');
  writeFileSync(config, `server.listen = "127.0.0.1:${port}"\nrtmp.listen = "127.0.0.1:${rtmp}"\nhls.segment = "1s"\nlive.take_over = "same-key"\n[[publish]]\nstream = "live/*"\nkey = "k"\n`);
  site.edge = start(BINARY, ['edge', '--config', config]);
  const [, hash] = await site.edge.says(/spki-list=(\S+)/);
  clips = {
    first: h264Clip(folder, { size: '320x180', tone: 440, sampleRate: 48_000, channels: 2 }),
    second: h264Clip(folder, { size: '480x360', rate: 30, tone: 660, sampleRate: 44_100, channels: 1, bFrames: 2 }),
    av1: av1Clip(folder, { size: '256x144', tone: 550 }),
  };
  bare = await serveBarePage();
  browser = await startBrowser([
    `--origin-to-force-quic-on=mendcast.test:${port}`,
    '--host-resolver-rules=MAP mendcast.test 127.0.0.1',
    `--ignore-certificate-errors-spki-list=${hash}`,
    '--disable-background-timer-throttling', '--disable-renderer-backgrounding', '--disable-backgrounding-occluded-windows',
  ]);
});

after(async () => {
  await closeBrowsers();
  bare?.close();
  for (const publisher of publishers) await publisher.close();
  await stopAll();
  rmSync(folder, { recursive: true, force: true });
});

async function publish(name, clip, rewrite) {
  const publisher = await goLive(site.rtmp, `live/${name}?key=k`, clip, rewrite);
  publishers.add(Object.assign(publisher, { name }));
  return publisher;
}

const FLV = 'the player page over HTTP-FLV';
const LOW_LATENCY = 'the player page over Low-Latency HLS';
const PLAIN = 'hls.js without partial segments';
const PLAYERS = {
  [FLV]: (name) => `https://mendcast.test:${site.port}/player.html?stream=live/${name}&protocol=flv`,
  [LOW_LATENCY]: (name) => `https://mendcast.test:${site.port}/player.html?stream=live/${name}&protocol=hls`,
  [PLAIN]: (name) => `http://127.0.0.1:${bare.address().port}/#${encodeURIComponent(`https://mendcast.test:${site.port}/live/${name}/index.m3u8`)}`,
};

/** Opens a viewer with each player: `{ player, name, when, page }`. */
const comeToWatch = (name, when) => Promise.all(Object.entries(PLAYERS).map(async ([player, url]) => {
  const viewer = { player, name, when, page: await browser.open(url(name), { width: 640, height: 480, before: WATCH, newWindow: true }) };
  watching.add(viewer);
  return viewer;
}));

/** Ends all viewers and publishers of a stream. */
async function leave(stream) {
  for (const viewer of [...watching].filter(({ name }) => name === stream)) {
    watching.delete(viewer);
    await viewer.page.close();
  }
  for (const publisher of [...publishers].filter(({ name }) => name === stream)) {
    publishers.delete(publisher);
    await publisher.close();
  }
}

const hears = ({ ms, played_s, loud_ms, sound_bytes }) => played_s * 1000 > 0.8 * ms && loud_ms > 0.8 * ms && sound_bytes > 0;
/** Whether it plays 25 or 30 pictures per second. */
const sees = ({ ms, frames, corrupted }) => frames > 20 * ms / 1000 && corrupted === 0;
const seesAndHears = (seen) => sees(seen) && hears(seen);

/** Diagnostics of a viewer that does not play. */
async function state({ player, when, page }, seen) {
  const element = await page.evaluate(`(() => {
    const v = document.querySelector('video');
    return { buffered: [...Array(v.buffered.length).keys()].map((i) => [v.buffered.start(i), v.buffered.end(i)]), paused: v.paused, rate: v.playbackRate, error: v.error?.message, hidden: document.hidden, faults: window.faults, text: document.body.innerText };
  })()`);
  return `${player}, ${when}: ${JSON.stringify({ seen, element, complaints: page.complaints, edge: site.edge.said.slice(-2000) }, null, 1)}`;
}

/**
 * Waits at least `atLeast` milliseconds, until the observations of each viewer satisfy `does` for two seconds.
 * Returns the freezes and errors until then.
 */
const until = (viewers, does, { atLeast = 0, within = 40_000 } = {}) => Promise.all(viewers.map(async (viewer) => {
  const met = { ...viewer, still_ms: 0, restarts: 0, errors: [], jumps: [] };
  const began = Date.now();
  for (;;) {
    await wait(2_000);
    const seen = await viewer.page.evaluate('watch.take()');
    met.still_ms = Math.max(met.still_ms, seen.still_ms);
    met.restarts += seen.restarts;
    met.errors.push(...seen.errors);
    met.jumps.push(...seen.jumps);
    met.size = `${seen.width}x${seen.height}`;
    const passed = Date.now() - began;
    if (does(seen) && passed >= atLeast) return met;
    if (passed > within) assert.fail(`not within ${within} ms: ${await state(viewer, seen)}`);
  }
}));

/**
 * Asserts that no viewer froze for more than `still` milliseconds, that there were no errors, and the number of
 * player starts, except for `restartingPlayer`.
 */
function assertSmooth(met, { still, starts, restartingPlayer }) {
  for (const { player, when, still_ms, restarts, errors, jumps } of met) {
    const said = `${player}, ${when}: frozen for ${still_ms} ms, ${restarts} starts, jumps ${jumps}, errors ${errors}`;
    if (process.env.VERBOSE) console.log(said);
    assert.ok(still_ms <= still, `more than ${still} ms: ${said}`);
    if (player !== restartingPlayer) assert.ok(errors.length === 0 && restarts === starts, said);
  }
}

async function pictures(viewers, name) {
  if (PICTURES) for (const [number, { page }] of viewers.entries()) await page.picture(join(PICTURES, `tracks-${name}-${number}.png`));
}

/** Viewers join, a change `happens`, others join. All must end up playing at this size; `still` limits freezes of the first viewers. */
async function watched(name, happens, { size = '320x180', still = STILL, restartingPlayer } = {}) {
  try {
    const publisher = await publish(name, clips.first);
    const earlier = await comeToWatch(name, 'there before');
    await until(earlier, seesAndHears);
    const more = await happens(publisher, earlier) ?? [];
    const later = await comeToWatch(name, 'came later');
    const plays = (seen) => seesAndHears(seen) && `${seen.width}x${seen.height}` === size;
    // Without partial segments a change arrives three segments later.
    const [met, metLater] = await Promise.all([until([...earlier, ...more], plays, { atLeast: 5_000 }), until(later, plays)]);
    await pictures([...earlier, ...more, ...later], name);
    assertSmooth(met, { still, starts: 0, restartingPlayer });
    assertSmooth(metLater, { still: STILL, starts: 1 });
  } finally {
    await leave(name);
  }
}

// One test at a time: each has up to nine players, and players without CPU time freeze too.
describe('playback continues', { skip: missing }, () => {
  test('audio is 1.5 s ahead of the picture', TIMEOUT, async () => {
    await watched('ahead', (publisher) => { publisher.audioAhead = 1500; });
  });

  test('the camera is switched off and on', TIMEOUT, async () => {
    await watched('camera', async (publisher, earlier) => {
      publisher.camera = false;
      const back = wait(1000 * CAMERA_OFF_S);
      // The server waits for 5 s before it repeats the last picture.
      assertSmooth(await until(earlier, hears, { atLeast: 7_000 }), { still: 6_000, starts: 0 });
      const meanwhile = await comeToWatch('camera', 'joined while it was off');
      await until(meanwhile, hears);
      await pictures([...earlier, ...meanwhile], 'camera-off');
      await back;
      publisher.camera = true;
      return meanwhile;
    });
  });

  test('another encoder takes over, with another size and sample rate', TIMEOUT, async () => {
    await watched('other', async () => { await publish('other', clips.second); }, { size: '480x360' });
  });

  test('another encoder takes over, with other codecs', TIMEOUT, async () => {
    // mpegts.js keeps its initial codecs, so the page restarts.
    await watched('codecs', async () => { await publish('codecs', clips.av1); }, { size: '256x144', still: 4_000, restartingPlayer: FLV });
  });

  test('an encoder adds tracks during playback', TIMEOUT, async () => {
    await watched('tracks', (publisher) => {
      publisher.add(clips.second, (tag) => asTrack(tag, 1));
      publisher.add(clips.first, (tag) => asTrack(tag, 2));
    });
  });

  test('an encoder with multitrack packets takes over', TIMEOUT, async () => {
    const other = ({ kind, payload }) => [...clips.second.headers, ...clips.second[kind]].find((tag) => tag.kind === kind && tag.payload[1] === payload[1]);
    await watched('packets', async () => { await publish('packets', clips.first, (tag) => asManyTracks(tag, other(tag))); });
  });
});
