// A server with invented data, for looking at the pages and for the tests in a browser:
//
//   make web && node web/test/mock.mjs [PORT]
//
// It serves web/dist with the real server's Content-Security-Policy, events with ten invented minutes
// before them, and, where ffmpeg is installed, streams: live/demo; live/freezy, held for 2.5 s every
// 6 s; live/short, which ends after 4 s; live/broken, cut after 4 s; live/sorenson, which no
// browser decodes; live/forbidden. Others are 404.
import { spawn } from 'node:child_process';
import { createReadStream, existsSync, mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { dirname, extname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const dist = join(dirname(fileURLToPath(import.meta.url)), '..', 'dist');
const TYPES = {
  '.html': 'text/html; charset=utf-8', '.js': 'text/javascript; charset=utf-8', '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml', '.txt': 'text/plain; charset=utf-8', '.m3u8': 'application/vnd.apple.mpegurl',
};
const POLICY = "default-src 'self'; media-src 'self' blob:";

/** The event of second `t`; `start` is the first second there is. */
export function inventedEvent(t, start = t - 600) {
  const wave = (period, phase = 0) => Math.sin((t / period + phase) * 2 * Math.PI);
  const noise = (seed) => (Math.abs(Math.sin(t * 12.9898 + seed * 78.233) * 43758.5453) % 1) - 0.5;
  const cohort = (i, name, scheme, recovery, freezes) => ({
    name, scheme, weight: [50, 40, 10][i], viewers: 30 + 11 * i, sessions: 1210 + 90 * i,
    first_frame_ms: { p50: 180 - 20 * i, p90: 250 - 20 * i + 15 * noise(i), p99: 400 },
    freezes_per_hour: freezes + noise(i + 9), freeze_s_per_hour: freezes * 1.3,
    loss_rate: 0.03 + 0.01 * wave(240, i / 9) + 0.004 * noise(i + 3), retransmission_ratio: 0.031 + 0.004 * i,
    recovery_ms: t - start < 60 && i === 2 ? null : { mean: recovery / 2, p95: recovery + 8 * noise(i + 5), max: recovery * 2 },
    redundancy_cost: i ? 0.012 : 0, start: i ? 'wira' : 'iw10',
  });
  return {
    time_ms: t * 1000, uptime_s: 93784 + t - start, version: '0.1.0',
    viewers: { h3: 61 + Math.round(9 * wave(300)), h2: 12 + Math.round(3 * noise(1)), h1: 3, rtmp: 1 },
    zero_rtt_share: 0.63, egress_mbps: 118 + 21 * wave(280) + 6 * noise(2), cpu_cores: 0.31 + 0.05 * noise(4), rss_mb: 84.2, udp_drops: 17,
    streams: [
      { name: 'live/demo', source: 'publish', status: 'live', viewers: 52, in_mbps: 1.5, gop_ms: 2000, key_frame_age_ms: (t * 1000) % 2000, skips: 0, codecs: 'avc1 mp4a', error: null },
      { name: 'live/concert', source: 'pull', status: 'live', viewers: 25, in_mbps: 3.96, gop_ms: 4000, key_frame_age_ms: 9350, skips: 3, codecs: 'hvc1 mp4a', error: null },
      { name: 'live/away', source: 'pull', status: 'connecting', viewers: 0, in_mbps: 0, gop_ms: null, key_frame_age_ms: null, skips: 0, codecs: '', error: 'rtmp://origin.example/live/away: connection refused; next try in 8 s' },
      { name: 'live/<b>later</b>', source: 'pull', status: 'waiting', viewers: 0, in_mbps: 0, gop_ms: null, key_frame_age_ms: null, skips: 0, codecs: '', error: null },
      { name: 'live/yesterday', source: 'publish', status: 'ended', viewers: 0, in_mbps: 0, gop_ms: 1000, key_frame_age_ms: null, skips: 1, codecs: 'av01 mp4a', error: null },
    ],
    cohorts: [cohort(0, 'control', 'arq', 140, 6), cohort(1, 'autorec', 'autorec', 82, 4), cohort(2, 'trial', 'art', 120, 5)],
    cookies: { accepted: 212, refused: { expired: 31, unmeasured: 7 }, strangers: 90, jumps: { passed: 180, failed: 6 } },
    sessions: Array.from({ length: 40 }, (_, i) => ({
      id: (0x9e3779b1 * (i + 1) >>> 0).toString(16).padStart(8, '0'), stream: i % 3 ? 'live/demo' : 'live/concert', cohort: ['control', 'autorec', 'trial'][i % 3],
      protocol: i % 7 ? 'h3' : 'h2', prefix: i % 5 ? `192.0.2.${i}/24` : '2001:db8:77::/48', rtt_ms: 12.5 + 7 * (i % 11) + noise(i), goodput_mbps: 1.5 + 0.2 * noise(i),
      loss_rate: 0.01 * (i % 6), first_frame_ms: i % 9 ? 150 + 11 * i : null, freezes: i % 8 === 0 ? 2 : 0, freeze_s: i % 8 === 0 ? 1.75 : 0, skips: i % 13 === 0 ? 1 : 0, age_s: 33 + 97 * i + (t - start),
      repair: i % 3 ? { level: i % 4, loss_rate: 0.05, t_unit_ms: 78.25, k_alpha: 2, k_beta: 6, k_gamma: 4, guard_budget_bytes: 9600 } : { level: 0 },
    })),
    hooks: [
      { event: 'on_publish', url: 'http://127.0.0.1:9000/hooks/publish', ok: 3, failed: 0, last_error: null },
      { event: 'on_play', url: 'http://127.0.0.1:9000/hooks/play', ok: 311, failed: 4, last_error: 'no answer within 2 s' },
    ],
  };
}

const PICTURE = ['-hide_banner', '-loglevel', 'fatal', '-re', '-f', 'lavfi', '-i', 'testsrc2=size=640x360:rate=25', '-re', '-f', 'lavfi', '-i', 'sine=frequency=330',
  '-c:v', 'libx264', '-preset', 'ultrafast', '-tune', 'zerolatency', '-pix_fmt', 'yuv420p', '-g', '25', '-b:v', '600k', '-c:a', 'aac', '-b:a', '64k'];

/** Starts the server on a loopback port (0 = any), with `pastS` seconds of events at once: `{ port, beacons, silence, close() }`. */
export async function startMock(port = 0, pastS = 600) {
  const beacons = [];
  let viewers = 0;
  const children = new Set();
  const eventStreams = new Set();
  const hlsDir = mkdtempSync(join(tmpdir(), 'mendcast-mock-'));
  const state = { silent: false };

  function ffmpeg(output, onError) {
    const child = spawn('ffmpeg', [...PICTURE, ...output], { stdio: ['ignore', 'pipe', 'inherit'] });
    children.add(child);
    child.on('error', onError).on('exit', () => children.delete(child));
    return child;
  }

  function flv(name, request, response) {
    const ms = 4000;
    const codec = name === 'sorenson' ? ['-c:v', 'flv'] : [];
    const child = ffmpeg([...codec, '-f', 'flv', 'pipe:1'], () => response.writeHead(503).end('ffmpeg is missing'));
    const started = Date.now();
    let held = [];
    const pass = () => {
      const into = (Date.now() - started) % 6000;
      if (name === 'freezy' && into > 3500) return;
      for (const chunk of held.splice(0)) response.write(chunk);
    };
    const timer = setInterval(pass, 20);
    child.stdout.on('data', (chunk) => {
      if (!response.headersSent) response.writeHead(200, { 'content-type': 'video/x-flv', 'cache-control': 'no-store' });
      held.push(chunk);
      pass();
    });
    const over = () => {
      clearInterval(timer);
      child.kill();
    };
    response.on('close', over);
    if (name === 'short') setTimeout(() => { over(); response.end(); }, ms);
    if (name === 'broken') setTimeout(() => { over(); response.destroy(); }, ms);
  }

  let hls = null;
  async function hlsFile(file, response) {
    hls ??= ffmpeg(['-f', 'hls', '-hls_time', '1', '-hls_list_size', '6', '-hls_flags', 'delete_segments', '-hls_segment_type', 'fmp4', join(hlsDir, 'index.m3u8')], () => {});
    const path = join(hlsDir, file);
    for (let i = 0; i < 60 && !existsSync(path); i++) await new Promise((done) => setTimeout(done, 100));
    send(path, response);
  }

  function send(path, response) {
    if (!existsSync(path)) return response.writeHead(404, { 'content-type': 'text/plain' }).end('not found\n');
    response.writeHead(200, { 'content-type': TYPES[extname(path)] ?? 'application/octet-stream', 'content-security-policy': POLICY, 'cache-control': 'no-store' });
    createReadStream(path).pipe(response);
  }

  function events(response) {
    response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store' });
    const start = Math.floor(Date.now() / 1000) - pastS;
    let next = start;
    const emit = () => {
      for (const now = Math.floor(Date.now() / 1000); next <= now && !state.silent; next++) {
        response.write(`data: ${JSON.stringify(inventedEvent(next, start))}\n\n`);
      }
    };
    emit();
    const timer = setInterval(emit, 250);
    eventStreams.add(response);
    response.on('close', () => { clearInterval(timer); eventStreams.delete(response); });
  }

  const server = createServer((request, response) => {
    const path = new URL(request.url, 'http://localhost').pathname;
    const stream = /^\/live\/([a-z]+)(\.flv|\/([\w.]+))$/.exec(path);
    if (path === '/beacon') {
      let body = '';
      request.on('data', (chunk) => { body += chunk; }).on('end', () => {
        beacons.push(JSON.parse(body));
        beacons.splice(0, beacons.length - 100);
        response.writeHead(204).end();
      });
    } else if (path === '/viewer') response.writeHead(200, { 'content-type': 'text/plain' }).end(`viewer-${(viewers += 1)}`);
    else if (path === '/api/events') events(response);
    else if (stream?.[1] === 'forbidden') response.writeHead(403).end();
    else if (stream && ['demo', 'freezy', 'short', 'broken', 'sorenson'].includes(stream[1])) {
      if (stream[2] === '.flv') flv(stream[1], request, response);
      else hlsFile(stream[3], response);
    } else if (path === '/') send(join(dist, 'dashboard.html'), response);
    else if (/^\/(player\.html|side-by-side\.html|licenses\.txt|(player|dashboard|side-by-side)\/[\w.-]+)$/.test(path)) send(join(dist, path), response);
    else response.writeHead(404).end();
  });
  await new Promise((done) => server.listen(port, '127.0.0.1', done));
  return {
    port: server.address().port,
    beacons,
    /** Stops or resumes the events, as a hung server would. */
    silence(silent) { state.silent = silent; },
    close() {
      for (const child of children) child.kill();
      server.closeAllConnections();
      server.close();
      // ffmpeg may be writing its last file.
      rmSync(hlsDir, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
    },
  };
}

// `node --test` without arguments runs each file of this folder: nothing to do then.
if (process.argv[1] === fileURLToPath(import.meta.url) && !process.env.NODE_TEST_CONTEXT) {
  const mock = await startMock(Number(process.argv[2] ?? 8099));
  console.log(`dashboard http://127.0.0.1:${mock.port}/\nplayer    http://127.0.0.1:${mock.port}/player.html?stream=live/demo&protocol=flv`);
  process.on('SIGINT', () => { mock.close(); process.exit(); });
}
