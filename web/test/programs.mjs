// Programs started by tests: free ports, their output, and their end by process.
import { spawn } from 'node:child_process';
import dgram from 'node:dgram';
import net from 'node:net';

export const wait = (ms) => new Promise((done) => setTimeout(done, ms));

/** A free port number, for TCP and UDP. */
export async function freePort() {
  for (;;) {
    const tcp = net.createServer().listen(0, '127.0.0.1');
    await new Promise((done) => tcp.once('listening', done));
    const { port } = tcp.address();
    const udp = dgram.createSocket('udp4');
    const free = await new Promise((done) => udp.once('error', () => done(false)).bind(port, '127.0.0.1', () => done(true)));
    tcp.close();
    udp.close();
    if (free) return port;
  }
}

const children = new Set();

/** Starts a program. Adds `{ said, printed, says(pattern, ms), gone, … }` to the child process. */
export function start(program, args) {
  const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  child.said = '';
  child.printed = '';
  child.stdout.setEncoding('utf8').on('data', (text) => { child.printed = (child.printed + text).slice(-20_000); });
  child.stderr.setEncoding('utf8').on('data', (text) => { child.said = (child.said + text).slice(-20_000); });
  children.add(child);
  child.gone = new Promise((done) => child.once('exit', (code) => { children.delete(child); done(code); }));
  child.says = async (pattern, ms = 10_000) => {
    for (const end = Date.now() + ms; !pattern.test(child.said); await wait(20)) {
      if (Date.now() > end || child.exitCode !== null) throw new Error(`${program}: no ${pattern} in:\n${child.said}`);
    }
    return child.said.match(pattern);
  };
  return child;
}

/** Ends all programs, the newest first. */
export async function stopAll() {
  for (const child of [...children].reverse()) {
    child.kill();
    await Promise.race([child.gone, wait(5_000)]);
    child.kill('SIGKILL');
  }
}
