// Compares recovery schemes with a real player: ffmpeg publishes, `mendcast edge` relays, `mendcast link` loses packets,
// and an unmodified Chromium plays over HTTP/3. In each run all schemes have the same seed of the link. The page counts
// freezes, the server copies, and the link losses.
//
// MENDCAST names the binary (`make e2e-cohorts`); `node cohorts.mjs --help` prints the options.
import { once } from 'node:events';
import { appendFileSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { cpus, tmpdir } from 'node:os';
import { basename, extname, join, normalize } from 'node:path';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { closeBrowsers, has, hasBrowser, startBrowser } from './browser.mjs';
import { difference, interval } from './intervals.mjs';
import { freePort, start, stopAll, wait } from './programs.mjs';

const BINARY = process.env.MENDCAST;
const CLIP = fileURLToPath(new URL('../../assets/demo.flv', import.meta.url));
const DIST = fileURLToPath(new URL('../dist/', import.meta.url));
/** Maximum wait for the first picture and other short steps, in milliseconds. */
const PATIENCE_MS = 30_000;
/** Media published before the viewer joins: at least one group of pictures. */
const HEAD_START_MS = 3_000;
const TYPES = { '.html': 'text/html; charset=utf-8', '.js': 'text/javascript; charset=utf-8', '.css': 'text/css; charset=utf-8', '.svg': 'image/svg+xml' };

const OPTIONS = {
  runs: { type: 'string', default: '10' },
  seconds: { type: 'string', default: '60' },
  loss: { type: 'string', default: 'calls:rate=8%' },
  rtt: { type: 'string', default: '100ms' },
  rate: { type: 'string', default: '20mbps' },
  // The player page uses 800. With it only long outages cause freezes.
  buffer: { type: 'string', default: '400' },
  schemes: { type: 'string', default: 'arq,autorec,deadline' },
  redundancy: { type: 'string', default: '0.5' },
  seed: { type: 'string', default: '1' },
  out: { type: 'string' },
  help: { type: 'boolean', default: false },
};
const HELP = `node cohorts.mjs [OPTIONS]
  --runs N         runs of each scheme (${OPTIONS.runs.default})
  --seconds N      how long each viewer watches, from the first picture on (${OPTIONS.seconds.default})
  --loss LOSS      of \`mendcast link\`, both ways (${OPTIONS.loss.default})
  --rtt, --rate    of the link (${OPTIONS.rtt.default}, ${OPTIONS.rate.default})
  --buffer MS      how far the player is to be behind live (${OPTIONS.buffer.default}; the player page has 800)
  --schemes A,B    values of [recovery] scheme; the others are compared with the first (${OPTIONS.schemes.default})
  --redundancy R   [recovery] max_redundancy of all of them (${OPTIONS.redundancy.default})
  --seed N         of the first run's link; further runs count on (${OPTIONS.seed.default})
  --out FILE       also appends each run to it, as a line of JSON`;

/** The page with players, from web/dist, also for binaries built without pages. */
async function servePages() {
  const server = createServer((request, response) => {
    const file = join(DIST, normalize(new URL(request.url, 'http://page').pathname));
    const found = file.startsWith(DIST) && extname(file) in TYPES && existsSync(file);
    response.writeHead(found ? 200 : 404, { 'content-type': TYPES[extname(file)] ?? 'text/plain' }).end(found ? readFileSync(file) : '');
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return server;
}

/** The sum of a metric over its labels, or over those of one protocol. */
function sumOf(metrics, name, protocol = '') {
  const lines = metrics.split('\n').filter((line) => line.startsWith(`${name}{`) && line.includes(`protocol="${protocol}`));
  return lines.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' '))), 0);
}

/** Busy time and total time of all cores, in milliseconds. */
function coresTime() {
  const all = cpus().map(({ times: { user, nice, sys, irq, idle } }) => ({ busy: user + nice + sys + irq, idle }));
  return all.reduce((sum, { busy, idle }) => ({ busy: sum.busy + busy, all: sum.all + busy + idle }), { busy: 0, all: 0 });
}

const meanOf = (values) => interval(values.filter(Number.isFinite)).mean;

/** Opens the page and watches for `seconds` after the first picture. Returns the counts of the page and samples per second. */
async function watch(browser, url, seconds) {
  const page = await browser.open(url, { width: 640, height: 700 });
  await page.until('window.mendcast?.[0].first_frame_ms > 0', PATIENCE_MS);
  const [end, cores] = [Date.now() + 1000 * seconds, coresTime()];
  // This process has the priority of the server and the link, so its delays also show theirs.
  const delay = monitorEventLoopDelay({ resolution: 5 });
  delay.enable();
  const [buffers, behinds] = [[], []];
  while (Date.now() < end) {
    await wait(Math.min(1_000, Math.max(0, end - Date.now())));
    const [buffer, behind] = await page.evaluate('[window.mendcast[0].buffer_ms, parseFloat(document.querySelector(".behind").textContent)]');
    buffers.push(buffer ?? NaN);
    behinds.push(behind ?? NaN);
  }
  const seen = await page.evaluate('window.mendcast[0]');
  const now = coresTime();
  delay.disable();
  const waited_ms = { p99: delay.percentile(99) / 1e6, most: delay.max / 1e6 };
  return { ...seen, waited_ms, buffer_s: meanOf(buffers) / 1000, behind_s: meanOf(behinds), busy: (now.busy - cores.busy) / (now.all - cores.all) };
}

async function within(ms, work) {
  let timer;
  const late = new Promise((_, reject) => { timer = setTimeout(() => reject(new Error(`not done within ${ms / 1000} s`)), ms); });
  return Promise.race([work, late]).finally(() => clearTimeout(timer));
}

/** Runs a viewer with a fresh server, publisher, link and browser. */
async function run(scheme, seed, options, { pages, folder }) {
  try {
    const [port, rtmp, admin] = [await freePort(), await freePort(), await freePort()];
    const config = join(folder, 'edge.toml');
    writeFileSync(config, `server.listen = "127.0.0.1:${port}"\nrtmp.listen = "127.0.0.1:${rtmp}"\nadmin.listen = "127.0.0.1:${admin}"\ndrain.timeout = "100ms"\n`
      + `[recovery]\nscheme = "${scheme}"\nmax_redundancy = ${options.redundancy}\nmax_redundancy_of_all = ${options.redundancy}\n`);
    const edge = start(BINARY, ['edge', '--config', config]);
    const [, hash] = await edge.says(/spki-list=(\S+)/);
    start('ffmpeg', ['-v', 'error', '-re', '-stream_loop', '-1', '-i', CLIP, '-c', 'copy', '-f', 'flv', `rtmp://127.0.0.1:${rtmp}/live/demo`]);
    await edge.says(/live\/demo: published/);
    await wait(HEAD_START_MS);
    const link = start(BINARY, ['link', '--listen', '127.0.0.1:0', '--to', `127.0.0.1:${port}`, '--rate', options.rate, '--rtt', options.rtt, '--loss', options.loss, '--seed', String(seed), '--json']);
    const [, door] = await link.says(/listening on \S+:(\d+)/);
    // The browser connects to the link. A fallback to TCP would fail.
    const browser = await startBrowser([
      `--origin-to-force-quic-on=mendcast.test:${door}`,
      '--host-resolver-rules=MAP mendcast.test 127.0.0.1',
      `--ignore-certificate-errors-spki-list=${hash}`,
    ]);
    const url = `http://127.0.0.1:${pages.address().port}/side-by-side.html?stream=live/demo&buffer_ms=${options.buffer}&player=${scheme}=https://mendcast.test:${door}`;
    // All other steps have time limits, but a browser that hangs never answers.
    const seen = await within(1000 * options.seconds + 2 * PATIENCE_MS, watch(browser, url, options.seconds));
    const metrics = await (await fetch(`http://127.0.0.1:${admin}/metrics`, { signal: AbortSignal.timeout(PATIENCE_MS) })).text();
    await browser.close();
    const closed = once(link, 'close', { signal: AbortSignal.timeout(PATIENCE_MS) });
    link.kill();
    await closed;
    return outcome(seen, metrics, JSON.parse(link.printed), { scheme, seed, loss: options.loss, watched_s: options.seconds });
  } finally {
    await closeBrowsers();
    await stopAll();
  }
}

/** Results of a run. Throws unless a viewer used HTTP/3 behind a lossy link. */
function outcome(seen, metrics, { down, up }, about) {
  const of = (name) => sumOf(metrics, `mendcast_${name}`, 'h3');
  const sessions = of('sessions_total');
  const others = sumOf(metrics, 'mendcast_sessions_total') - sessions;
  if (sessions < 1 || others > 0) throw new Error(`${sessions} sessions over HTTP/3 and ${others} over something else`);
  if (about.loss !== 'none' && down.lost.packets === 0) throw new Error('the link lost nothing');
  const lossOf = ({ sent, lost }) => lost.packets / sent.packets;
  const first = of('first_transmissions_total');
  const watched = seen.played_s + seen.freeze_s;
  return {
    ...about, sessions, freezes: seen.freezes, freeze_s: seen.freeze_s, played_s: seen.played_s,
    freezes_per_minute: 60 * seen.freezes / watched, frozen: seen.freeze_s / watched,
    // The buffer reported by the player, used by "deadline"; some seconds old.
    told_freezes: of('freezes_total'), told_played_s: of('played_seconds_total'),
    // Neither playing nor frozen: the page had no stream.
    away_s: Math.max(0, about.watched_s - watched),
    first_frame_ms: seen.first_frame_ms, frames: seen.frames, dropped: seen.dropped, buffer_s: seen.buffer_s, behind_s: seen.behind_s, busy: seen.busy, waited_ms: seen.waited_ms,
    lost_down: lossOf(down), lost_up: lossOf(up), queue_dropped: down.queue_dropped.packets,
    first, retransmissions: of('retransmissions_total'), replicas: of('replicas_total'),
    cost: of('replicas_total') / first, sent_per_media_byte: down.sent.bytes / of('media_bytes_total'),
  };
}

const percent = (share) => `${(100 * share).toFixed(1)} %`;

function line(number, one) {
  return [
    `run ${String(number).padStart(2)}  ${one.scheme.padEnd(9)} seed ${one.seed}: ${String(one.freezes).padStart(2)} freezes, ${one.freeze_s.toFixed(2).padStart(5)} s frozen, ${one.played_s.toFixed(1)} s played`,
    `${one.behind_s.toFixed(2)} s behind live`, `${one.buffer_s.toFixed(2)} s buffered`, `first frame ${one.first_frame_ms} ms`,
    `lost ${percent(one.lost_down)} down, ${percent(one.lost_up)} up`, `replicas ${one.replicas} of ${one.first}: ${percent(one.cost)}`,
    `${one.sent_per_media_byte.toFixed(2)} bytes sent per media byte`, `CPU ${percent(one.busy)}, late by ${one.waited_ms.p99.toFixed(0)} ms (99 %), ${one.waited_ms.most.toFixed(0)} ms at most`,
    ...(one.told_played_s === 0 ? ['no reports of the player reached the server'] : []),
    ...(one.away_s > 1 ? [`without a stream for ${one.away_s.toFixed(1)} s`] : []),
    ...(one.dropped > one.frames / 20 ? [`${one.dropped} of ${one.frames} frames dropped`] : []),
    ...(one.sessions > 1 ? [`${one.sessions} sessions`] : []),
  ].join('; ');
}

const COLUMNS = [
  ['freezes/min', 'freezes_per_minute', 1, 2], ['frozen %', 'frozen', 100, 2], ['behind live s', 'behind_s', 1, 2], ['replicas %', 'cost', 100, 1],
  ['sent/media', 'sent_per_media_byte', 1, 3], ['lost down %', 'lost_down', 100, 1],
];

/** Means and 95 % intervals of each scheme, and of its difference from the first one, paired by seed. */
function table(done, schemes) {
  const by = (scheme, field) => new Map(done.filter((one) => one.scheme === scheme).map((one) => [one.seed, one[field]]));
  const cell = ({ mean, half }, factor, digits) => `${(factor * mean).toFixed(digits)} ± ${Number.isNaN(half) ? '?' : (factor * half).toFixed(digits)}`;
  const row = (title, runs, value) => [title, String(runs), ...COLUMNS.map(([, field, factor, digits]) => cell(value(field), factor, digits))];
  const rows = [
    ['scheme', 'runs', ...COLUMNS.map(([title]) => title)],
    ...schemes.map((scheme) => row(scheme, by(scheme, 'seed').size, (field) => interval([...by(scheme, field).values()]))),
    ...schemes.slice(1).map((scheme) => {
      const pairs = [...by(scheme, 'seed').keys()].filter((seed) => by(schemes[0], 'seed').has(seed)).length;
      return row(`${scheme} − ${schemes[0]}`, pairs, (field) => difference(by(scheme, field), by(schemes[0], field)));
    }),
  ];
  const widths = rows[0].map((_, i) => Math.max(...rows.map((cells) => cells[i].length)));
  const lines = rows.map((cells) => `| ${cells.map((text, i) => (i ? text.padStart(widths[i]) : text.padEnd(widths[i]))).join(' | ')} |`);
  lines.splice(1, 0, `|${widths.map((width, i) => (i ? `${'-'.repeat(width + 1)}:` : '-'.repeat(width + 2))).join('|')}|`);
  return lines.join('\n');
}

async function main() {
  const { values } = parseArgs({ options: OPTIONS });
  if (values.help) return console.log(HELP);
  const missing = (!BINARY && 'MENDCAST names no binary') || (!hasBrowser() && 'no chromium') || (!has('ffmpeg', '-version') && 'no ffmpeg')
    || (!existsSync(join(DIST, 'side-by-side.html')) && 'no pages (make web)');
  if (missing) return console.log(`skipped: ${missing}`);
  const options = { ...values, runs: Number(values.runs), seconds: Number(values.seconds), seed: Number(values.seed) };
  if (!(options.runs >= 1 && options.seconds >= 1 && Number.isInteger(options.seed))) throw new Error(HELP);
  const schemes = options.schemes.split(',');
  console.log(`${basename(BINARY)}, ${options.runs} runs of ${options.seconds} s for each of ${schemes.join(', ')}: ${options.loss}, ${options.rtt}, ${options.rate}, ${options.buffer} ms behind live, at most ${options.redundancy} replicas per packet`);
  const folder = mkdtempSync(join(tmpdir(), 'mendcast-cohorts-'));
  const pages = await servePages();
  const leave = async () => {
    pages.close();
    await closeBrowsers();
    await stopAll();
    rmSync(folder, { recursive: true, force: true });
  };
  for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => leave().finally(() => process.exit(1)));
  const done = [];
  for (let number = 1; number <= options.runs; number += 1) {
    // The first scheme rotates, so that the load of the machine affects all schemes alike.
    const turn = schemes.map((_, i) => schemes[(i + number - 1) % schemes.length]);
    for (const scheme of turn) {
      const seed = options.seed + number - 1;
      try {
        const one = await run(scheme, seed, options, { pages, folder });
        done.push(one);
        console.log(line(number, one));
        if (options.out) appendFileSync(options.out, `${JSON.stringify(one)}\n`);
      } catch (error) {
        // A failed run is not a run without freezes: it is excluded and reported.
        console.log(`run ${String(number).padStart(2)}  ${scheme.padEnd(9)} seed ${seed}: failed: ${error.message}`);
        process.exitCode = 1;
      }
    }
  }
  await leave();
  console.log(`\n${table(done, schemes)}\n\nMeans with 95 % intervals (Student's t) over runs; differences seed by seed.`);
}

await main();
