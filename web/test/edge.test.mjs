// End-to-end tests with real programs: ffmpeg publishes, `mendcast edge` relays, `mendcast link` loses
// packets, and an unmodified Chromium plays over HTTP/3. MENDCAST names the binary (`make e2e`).
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after, before } from 'node:test';
import { fileURLToPath } from 'node:url';
import { closeBrowsers, has, hasBrowser, startBrowser } from './browser.mjs';
import { freePort, start, stopAll, wait } from './programs.mjs';

const BINARY = process.env.MENDCAST;
const CLIP = fileURLToPath(new URL('../../assets/demo.flv', import.meta.url));
const PICTURES = process.env.PICTURES;
const missing = (!BINARY && 'MENDCAST names no binary') || (!hasBrowser() && 'no chromium') || (!has('ffmpeg', '-version') && 'no ffmpeg');
const TIMEOUT = { timeout: 120_000 };

const folder = mkdtempSync(join(tmpdir(), 'mendcast-e2e-'));
let site;
let browser;

const publish = (name) => start('ffmpeg', ['-v', 'error', '-re', '-stream_loop', '-1', '-i', CLIP, '-c', 'copy', '-f', 'flv', `rtmp://127.0.0.1:${site.rtmp}/live/${name}`]);

before(async () => {
  if (missing) return;
  const [port, rtmp, link, admin] = [await freePort(), await freePort(), await freePort(), await freePort()];
  site = { port, rtmp, link, admin };
  const config = join(folder, 'edge.toml');
  writeFileSync(config, `server.listen = "127.0.0.1:${port}"\nrtmp.listen = "127.0.0.1:${rtmp}"\nlive.linger = "20s"\nlive.cors = "*"\nrecords.directory = "records"\nadmin.listen = "127.0.0.1:${admin}"\n`);
  site.edge = start(BINARY, ['edge', '--config', config]);
  const [, hash] = await site.edge.says(/spki-list=(\S+)/);
  site.hash = hash;
  site.relay = start(BINARY, ['link', '--listen', `127.0.0.1:${link}`, '--to', `127.0.0.1:${port}`, '--rate', '20mbps', '--rtt', '60ms', '--loss', '3%', '--seed', '1']);
  site.publisher = publish('demo');
  await site.edge.says(/live\/demo: published/);
  // The browser connects to the link. A fallback to TCP would fail.
  browser = await startBrowser([
    `--origin-to-force-quic-on=mendcast.test:${link}`,
    '--host-resolver-rules=MAP mendcast.test 127.0.0.1',
    `--ignore-certificate-errors-spki-list=${hash}`,
  ]);
});

after(async () => {
  await closeBrowsers();
  await stopAll();
  rmSync(folder, { recursive: true, force: true });
});

const player = (stream, protocol) => browser.open(`https://mendcast.test:${site.link}/player.html?stream=live/${stream}&protocol=${protocol}`, { width: 1000, height: 800 });
const frames = (page) => page.evaluate('document.querySelector("video").getVideoPlaybackQuality().totalVideoFrames');

/** Diagnostics of a frozen picture: the element, the page's text, and the logs of server and link. */
async function state(page) {
  const element = await page.evaluate(`(() => {
    const v = document.querySelector('video');
    const buffered = [...Array(v.buffered.length).keys()].map((i) => [v.buffered.start(i), v.buffered.end(i)]);
    return { time: v.currentTime, buffered, ready: v.readyState, network: v.networkState, paused: v.paused, rate: v.playbackRate,
      error: v.error?.message, hidden: document.hidden, quality: v.getVideoPlaybackQuality(), page: { ...window.mendcast }, text: document.body.innerText,
      requests: performance.getEntriesByType('resource').slice(-6).map(({ name, startTime, responseStart, responseEnd }) => [name, startTime, responseStart, responseEnd].join(' ')), now: performance.now() };
  })()`);
  return JSON.stringify({ element, complaints: page.complaints, edge: site.edge.said, link: site.relay.said, publisher: site.publisher.said }, null, 1);
}

/** The server's session records. */
const records = () => readdirSync(join(folder, 'records')).filter((name) => name.endsWith('.jsonl'))
  .flatMap((name) => readFileSync(join(folder, 'records', name), 'utf8').split('\n').slice(0, -1).map((line) => JSON.parse(line)));

async function plays(page, seconds, name) {
  await page.until('window.mendcast?.first_frame_ms > 0', 30_000);
  let before = await frames(page);
  for (let second = 0; second < seconds; second += 2) {
    await wait(2_000);
    const now = await frames(page);
    if (now <= before + 20) assert.fail(`frames advance: ${before}, ${now} after ${second + 2} s; ${await state(page)}`);
    before = now;
  }
  if (PICTURES) await page.picture(join(PICTURES, `${name}.png`));
}

test('mpegts.js plays HTTP-FLV over HTTP/3 through 3 % loss for 20 s', { skip: missing, ...TIMEOUT }, async () => {
  const page = await player('demo', 'flv');
  await plays(page, 20, 'player-flv');
  assert.equal(await page.evaluate('window.mendcast.next_hop'), 'h3');
  assert.deepEqual(page.complaints, []);
  await page.close();
});

test('hls.js plays Low-Latency HLS over HTTP/3 through 3 % loss for 20 s', { skip: missing, ...TIMEOUT }, async () => {
  const page = await player('demo', 'hls');
  await plays(page, 20, 'player-hls');
  assert.equal(await page.evaluate('window.mendcast.next_hop'), 'h3');
  assert.deepEqual(page.complaints, []);
  await page.close();
});

test('the dashboard and the metrics show the session', { skip: missing, ...TIMEOUT }, async () => {
  const watching = await player('demo', 'flv');
  await plays(watching, 2, 'player-watched');
  // In a separate browser, because a browser pauses muted videos in hidden pages.
  const other = await startBrowser();
  const page = await other.open(`http://127.0.0.1:${site.admin}/`, { width: 1400, height: 1000 });
  await page.until("/live\\/demo/.test(document.querySelector('#streams').innerText)");
  await page.until("document.querySelectorAll('#sessions tbody tr').length >= 1");
  assert.deepEqual(page.complaints, []);
  await wait(5_000);
  if (PICTURES) await page.picture(join(PICTURES, 'dashboard.png'), true);
  await other.close();
  const accept = 'application/openmetrics-text';
  const metrics = await (await fetch(`http://127.0.0.1:${site.admin}/metrics`, { headers: { accept } })).text();
  assert.match(metrics, /mendcast_viewers\{cohort="all",protocol="h3",format="flv"\} 1/);
  assert.match(metrics, /mendcast_first_frame_seconds_bucket\{le="\+Inf",cohort="all"/);
  assert.match(metrics, /# EOF\n$/);
  await watching.close();
});

test('the picture returns when a killed publisher returns', { skip: missing, ...TIMEOUT }, async () => {
  const page = await player('demo', 'flv');
  await plays(page, 2, 'player-before');
  site.publisher.kill('SIGKILL');
  await site.publisher.gone;
  await wait(3_000);
  site.publisher = publish('demo');
  await wait(3_000);
  await plays(page, 4, 'player-after');
  await page.close();
});

test('the picture returns after an outage of two seconds', { skip: missing, ...TIMEOUT }, async () => {
  const page = await player('demo', 'flv');
  await plays(page, 2, 'player-before-blackhole');
  site.relay.kill('SIGSTOP');
  await wait(2_000);
  site.relay.kill('SIGCONT');
  await wait(3_000);
  await plays(page, 4, 'player-after-blackhole');
  await page.close();
});

test('side by side: only the player behind outages freezes, and the server gets the same counts', { skip: missing, ...TIMEOUT }, async () => {
  // The server distinguishes the two viewers by their networks.
  // Outages at fixed times, because a random one may outlast the test.
  const outages = `script:${Array.from({ length: 15 }, (_, i) => `${5 + 5 * i}s+1200ms`).join(',')}`;
  const links = await Promise.all([['outages', '127.0.2', ['--loss', outages]], ['none', '127.0.3', []]].map(async ([name, network, loss]) => {
    const port = await freePort();
    const program = start(BINARY, ['link', '--listen', `127.0.0.1:${port}`, '--to', `127.0.0.1:${site.port}`, '--from', `${network}.1`, '--rate', '20mbps', '--rtt', '60ms', ...loss, '--seed', '2']);
    return { name, port, program, prefix: `${network}.0/24` };
  }));
  const own = await startBrowser([
    `--origin-to-force-quic-on=${links.map(({ port }) => `mendcast.test:${port}`).join(',')}`,
    '--host-resolver-rules=MAP mendcast.test 127.0.0.1',
    `--ignore-certificate-errors-spki-list=${site.hash}`,
  ]);
  const address = (query) => `http://127.0.0.1:${site.admin}/side-by-side.html?${query}`;
  const players = links.map(({ name, port }) => `player=${name}=https://mendcast.test:${port}`).join('&');
  const page = await own.open(address(`stream=live/demo&buffer_ms=400&${players}`), { width: 1280, height: 700 });
  const until = (expression) => page.until(expression, 40_000).catch(async (error) => {
    const shown = await page.evaluate('JSON.stringify(window.mendcast) + document.body.innerText');
    throw new Error([error.message, shown, ...page.complaints, ...links.map(({ program }) => program.said), site.edge.said, site.publisher.said].join('\n'));
  });
  await until('window.mendcast?.length === 2 && window.mendcast.every((one) => one.first_frame_ms > 0)');
  const begun = await page.evaluate('window.mendcast[1].frames');
  await until('window.mendcast[0].freezes >= 3');
  // The page shows its reports, and marks a frozen picture by a word and in the strip.
  await page.until(`[...document.querySelectorAll('section .freezes')].every((shown, i) => shown.textContent === String(window.mendcast[i].freezes))`);
  const isAbout = (shown, told) => `Math.abs(parseFloat(${shown}) - ${told}) < 0.5`;
  await page.until(`[...document.querySelectorAll('section dd.frozen')].every((shown, i) => ${isAbout('shown.textContent', 'window.mendcast[i].freeze_s')})`);
  const red = (i) => page.evaluate(`document.querySelectorAll('section .strip')[${i}].querySelectorAll('.frozen').length`);
  assert.deepEqual([await red(0) >= 3, await red(1)], [true, 0]);
  await page.until(`[...document.querySelectorAll('section')].some((section) => section.dataset.state === 'frozen' && section.querySelector('.word').innerText === 'frozen')`, 20_000);
  if (PICTURES) await page.picture(join(PICTURES, 'side-by-side.png'));
  // The table of sessions shows the players' reports.
  const sessions = async () => (await (await fetch(`http://127.0.0.1:${site.admin}/api/state`)).json()).sessions;
  const frozen = (all, { prefix }) => all.filter((one) => one.prefix === prefix).map((one) => one.freezes ?? one.player_freezes ?? 0).reduce((sum, n) => sum + n, 0);
  let all = [];
  for (const end = Date.now() + 15_000; frozen(all, links[0]) < 3 && Date.now() < end; await wait(200)) all = await sessions();
  assert.ok(frozen(all, links[0]) >= 3, JSON.stringify(all));
  assert.ok(links.every(({ prefix }) => all.some((one) => one.prefix === prefix && one.protocol === 'h3')), JSON.stringify(all));
  // Leaving the page posts the final sums, and both viewers get a record with them.
  const seen = await page.evaluate('window.mendcast');
  assert.deepEqual(page.complaints, []);
  await page.evaluate("location.href = 'about:blank'");
  await page.close();
  // A viewer gets several records if an outage ends its connection.
  const hasLeft = ({ prefix }, i) => records().some((one) => one.prefix === prefix) && Math.abs(frozen(records(), links[i]) - seen[i].freezes) <= 1;
  for (const end = Date.now() + 40_000; !links.every(hasLeft) && Date.now() < end;) await wait(200);
  assert.ok(links.every(hasLeft), `records with the page's ${seen.map((one) => one.freezes)} freezes: ${JSON.stringify(records())}`);
  assert.deepEqual([seen[1].freezes, frozen(records(), links[1])], [0, 0], JSON.stringify(seen));
  assert.ok(seen[1].frames > begun + 100, `frames advance: ${begun}, ${seen[1].frames}`);
  await own.close();
  for (const { program } of links) program.kill();
});

test('side by side: the page reports an invalid address and unreachable servers', { skip: missing, ...TIMEOUT }, async () => {
  const own = await startBrowser();
  const page = await own.open(`http://127.0.0.1:${site.admin}/side-by-side.html?buffer_ms=5`, { width: 390, height: 700 });
  await page.until('document.querySelector("#fault").innerText.startsWith("buffer_ms is “5”")');
  assert.deepEqual(page.complaints, []);
  await page.close();
  const nobody = `https://127.0.0.1:${await freePort()}`;
  const other = await own.open(`http://127.0.0.1:${site.admin}/side-by-side.html?player=away=${nobody}`, { width: 390, height: 700 });
  await other.until(`document.querySelector(".word").innerText.includes("${nobody} cannot be reached")`);
  await own.close();
});

test('each viewer gets a record with transport and player', { skip: missing, ...TIMEOUT }, async () => {
  const page = await player('demo', 'flv');
  await plays(page, 6, 'player-record');
  const since = Date.now() - 60_000;
  await page.close();
  let record;
  // Viewers of other tests have other networks, and their sessions may end later.
  const isOurs = (r) => r.prefix === '127.0.0.0/24' && r.started_ms > since && r.player_played_s > 4 && r.protocol === 'h3';
  for (const end = Date.now() + 60_000; !record && Date.now() < end; await wait(200)) record = records().findLast(isOurs);
  assert.ok(record, 'a record within a minute');
  assert.equal(record.protocol, 'h3');
  assert.ok(record.loss_rate > 0.005 && record.loss_rate < 0.1, `loss ${record.loss_rate}`);
  assert.ok(record.rtt_min_ms >= 59 && record.rtt_min_ms < 90, `RTT ${record.rtt_min_ms}`);
  assert.ok(record.first_frame_ms >= 60 && record.first_frame_ms < 2_000, `first frame ${record.first_frame_ms}`);
  assert.ok(record.player_played_s > 4 && record.player_first_frame_ms > 0, JSON.stringify(record));
});
