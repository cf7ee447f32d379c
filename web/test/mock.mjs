// A server with invented data, for viewing the pages and for tests in a browser:
//
//   make web && node web/test/mock.mjs [PORT]
//
// It serves web/dist with the real server's Content-Security-Policy, events after ten invented minutes
// of history, and, with ffmpeg, streams: live/demo; live/freezy, which pauses for 2.5 s every 6 s;
// live/short, which ends after 4 s; live/broken, cut after 4 s; live/sorenson, which no browser
// decodes; live/forbidden. Others get a 404.
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

/** The event of second `t`, with history from second `start`. */
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
      { name: 'live/concert', source: 'pull', status: 'live', viewers: 25, in_mbps: 3.96, gop_ms: 4000, key_frame_age_ms: 9350, skips: 3, codecs: 'hvc1 mp4a', corrections: { start_codes: 300, adts: 225 }, error: null },
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
      repair: i % 3 === 2 ? { level: i % 3, slack_ms: 84.2, lost_again_percent: 17.3, late_without_copies_ms: 21.4, late_ms: 4.9, first_copy_after_ms: 42.5, queue_is_full: 0, retransmitted_with_copies: 31, had_time: 7, copies_too_dear: 2, queue_was_full: 0, was_answer: 4, overdue_sent: 12, overdue_declined: 3, guard_budget_bytes: 31200, guard_refusals: 0 } : i % 3 ? { level: i % 4, loss_rate: 0.05, t_unit_ms: 78.25, k_alpha: 2, k_beta: 6, k_gamma: 4, guard_budget_bytes: 9600 } : { level: 0 },
    })),
    hooks: [
      { event: 'on_publish', url: 'http://127.0.0.1:9000/hooks/publish', ok: 3, failed: 0, last_error: null },
      { event: 'on_play', url: 'http://127.0.0.1:9000/hooks/play', ok: 311, failed: 4, last_error: 'no answer within 2 s' },
    ],
  };
}

/** The response of `api/autoplex` at second `t`: 30 groups over 20 periods; one group has been off for hours. */
export function inventedGroups(t) {
  const period = 1800;
  const end = Math.floor(t / period) * period - period;
  const ends = Array.from({ length: 20 }, (_, i) => end - (19 - i) * period);
  const noise = (seed) => (Math.abs(Math.sin(seed * 78.233) * 43758.5453) % 1) - 0.5;
  const outcomes = (sessions, freezes, first) => ({ sessions, freezes_per_100_s: freezes, frozen_s_per_100_s: freezes * 0.6, first_frames: sessions, first_frame_ms: first });
  const shown = Array.from({ length: 30 }, (_, i) => {
    const name = i === 7 ? 'TR/<b>AS9121</b>/34/İstanbul' : i === 3 ? 'BR/AS28573/SP/Campinas' : `${['BR', 'TR', 'MX'][i % 3]}/AS${20_000 + 631 * i}/City ${i}`;
    const base = 3e6 + 9e6 * Math.abs(noise(i + 1));
    const off = i === 7 ? { since: ends[12], by: name, why: ['freezes'], treated: outcomes(2130, 1.93, 240), holdout: outcomes(144, 0.71, 236) } : null;
    const rates = ends.map((_, k) => (i % 9 === 8 && k < 6 ? null : Math.round(base * (1 + 0.25 * Math.sin(k / 3 + i) + 0.06 * noise(i + k)))));
    return {
      name, sessions: Math.round(4200 / (i + 1)), rate: rates.at(-1), in_flight: Math.round(rates.at(-1) / 80), decided: end, off, counted: end - 86400,
      treated: off ? off.treated : outcomes(Math.round(52_000 / (i + 1)), 0.7 + 0.3 * noise(i + 40), 230 + 60 * noise(i + 50)),
      holdout: off ? off.holdout : outcomes(Math.round(3400 / (i + 1)), 0.74 + 0.4 * noise(i + 60), 240 + 80 * noise(i + 70)),
      rates, offs: ends.map((_, k) => Number(i === 7 && k >= 12)),
    };
  });
  return {
    time_ms: t * 1000, mode: 'safe', shares: { explorers: 0.1, holdout: 0.05, control: 0.1 }, limits: { floor: 1.5, ceiling: 3, behind: 1.5 },
    table: { decided: end, age_s: t - end, lifetime_s: 7200, groups: 412 },
    sessions: { explorer: 1204, holdout: 611, control: 1010, treated: 9233 },
    absent: { expired: 0, future: 0, unknown: 118, undecided: 41, off: 97, 'no table': 3 }, tables: { loaded: 20, refused: 1 }, report_fault: null,
    report: { end, period_s: period, window_s: 2 * period, lifetime_s: 7200, policy: 'open-rate', groups: 412, decided: 398, off: 1, sessions: 31_877, left_out: 382, ends, shown },
  };
}

const PICTURE = ['-hide_banner', '-loglevel', 'fatal', '-re', '-f', 'lavfi', '-i', 'testsrc2=size=640x360:rate=25', '-re', '-f', 'lavfi', '-i', 'sine=frequency=330',
  '-c:v', 'libx264', '-preset', 'ultrafast', '-tune', 'zerolatency', '-pix_fmt', 'yuv420p', '-g', '25', '-b:v', '600k', '-c:a', 'aac', '-b:a', '64k'];

/** Starts the server on a loopback port (0 = any) with `pastS` seconds of history: `{ port, beacons, silence, groups, close() }`. */
export async function startMock(port = 0, pastS = 600) {
  const beacons = [];
  let viewers = 0;
  const children = new Set();
  const eventStreams = new Set();
  const hlsDir = mkdtempSync(join(tmpdir(), 'mendcast-mock-'));
  const state = { silent: false, groups: {} };

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
    else if (path === '/api/autoplex') {
      if (state.silent) response.writeHead(500).end();
      else response.writeHead(200, { 'content-type': 'application/json', 'cache-control': 'no-store' }).end(JSON.stringify({ ...inventedGroups(Math.floor(Date.now() / 1000)), ...state.groups }));
    }
    else if (stream?.[1] === 'forbidden') response.writeHead(403).end();
    else if (stream && ['demo', 'freezy', 'short', 'broken', 'sorenson'].includes(stream[1])) {
      if (stream[2] === '.flv') flv(stream[1], request, response);
      else hlsFile(stream[3], response);
    } else if (path === '/') send(join(dist, 'dashboard.html'), response);
    else if (/^\/(groups\.html|player\.html|side-by-side\.html|licenses\.txt|(player|dashboard|side-by-side)\/[\w.-]+)$/.test(path)) send(join(dist, path), response);
    else response.writeHead(404).end();
  });
  await new Promise((done) => server.listen(port, '127.0.0.1', done));
  return {
    port: server.address().port,
    beacons,
    /** Stops or resumes the events, like a server that hangs. */
    silence(silent) { state.silent = silent; },
    /** Overrides the response of `api/autoplex`. */
    groups(instead) { state.groups = instead; },
    close() {
      for (const child of children) child.kill();
      server.closeAllConnections();
      server.close();
      // ffmpeg may still write its last file.
      rmSync(hlsDir, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
    },
  };
}

// `node --test` without arguments also runs this file, which then does nothing.
if (process.argv[1] === fileURLToPath(import.meta.url) && !process.env.NODE_TEST_CONTEXT) {
  const mock = await startMock(Number(process.argv[2] ?? 8099));
  console.log(`dashboard http://127.0.0.1:${mock.port}/\nplayer    http://127.0.0.1:${mock.port}/player.html?stream=live/demo&protocol=flv`);
  process.on('SIGINT', () => { mock.close(); process.exit(); });
}
