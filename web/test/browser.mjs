// A headless Chromium over its debugging pipe: opens pages with a size and a colour scheme, evaluates
// scripts in them, and takes screenshots.
import { spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const CHROMIUM = process.env.CHROMIUM ?? 'chromium';

/** Whether a program can be run. */
export const has = (program, flag = '--version') => spawnSync(program, [flag], { stdio: 'ignore' }).status === 0;
export const hasBrowser = () => has(CHROMIUM);

const running = new Set();

/** Closes the browsers of failed tests, which would keep the test file from ending. */
export const closeBrowsers = () => Promise.all([...running].map((one) => one.close()));

/** Starts a separate browser: `{ open(url, options), close() }`. */
export async function startBrowser(args = []) {
  const profile = mkdtempSync(join(tmpdir(), 'mendcast-browser-'));
  const child = spawn(
    CHROMIUM,
    ['--headless=new', '--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--autoplay-policy=no-user-gesture-required', `--user-data-dir=${profile}`, '--remote-debugging-pipe', ...args, 'about:blank'],
    { stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'] },
  );
  const gone = new Promise((done) => child.once('exit', done));
  const [, , , toBrowser, fromBrowser] = child.stdio;
  // A killed browser no longer reads.
  toBrowser.on('error', () => {});
  const waiting = new Map();
  const listeners = new Set();
  let last = 0;
  let text = '';
  fromBrowser.setEncoding('utf8').on('data', (chunk) => {
    text += chunk;
    const messages = text.split('\0');
    text = messages.pop();
    for (const message of messages.map((m) => JSON.parse(m))) {
      if (message.id === undefined) listeners.forEach((listener) => listener(message));
      else {
        const { resolve, reject } = waiting.get(message.id);
        waiting.delete(message.id);
        if (message.error) reject(new Error(message.error.message));
        else resolve(message.result);
      }
    }
  });
  const send = (method, params = {}, sessionId = undefined) => new Promise((resolve, reject) => {
    waiting.set(++last, { resolve, reject });
    toBrowser.write(`${JSON.stringify({ id: last, method, params, sessionId })}\0`);
  });

  const browser = {
    /** Opens `url`, in a window of its own if it is to be in sight beside others, after the script `before`, each answer at least `latency` ms behind its request: `{ evaluate(expression), until(expression, ms), throttle(rate), picture(file), complaints, close() }`. */
    async open(url, { width = 1400, height = 1000, dark = false, before = '', newWindow = false, latency = 0 } = {}) {
      const { targetId } = await send('Target.createTarget', { url: 'about:blank', newWindow });
      const { sessionId } = await send('Target.attachToTarget', { targetId, flatten: true });
      const to = (method, params) => send(method, params, sessionId);
      const complaints = [];
      const listen = (message) => {
        if (message.sessionId !== sessionId) return;
        const { method, params } = message;
        if (method === 'Runtime.exceptionThrown') complaints.push(params.exceptionDetails.exception?.description ?? params.exceptionDetails.text);
        if (method === 'Runtime.consoleAPICalled' && params.type === 'error') complaints.push(params.args.map((arg) => arg.value ?? arg.description).join(' '));
        if (method === 'Log.entryAdded' && params.entry.level === 'error') complaints.push(`${params.entry.text} ${params.entry.url ?? ''}`);
      };
      listeners.add(listen);
      await to('Runtime.enable');
      await to('Log.enable');
      await to('Page.enable');
      await to('Emulation.setDeviceMetricsOverride', { width, height, deviceScaleFactor: 1, mobile: false });
      await to('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value: dark ? 'dark' : 'light' }] });
      await to('Page.addScriptToEvaluateOnNewDocument', { source: before });
      if (latency > 0) {
        await to('Network.enable');
        await to('Network.emulateNetworkConditions', { offline: false, latency, downloadThroughput: -1, uploadThroughput: -1 });
      }
      await to('Page.navigate', { url });
      const evaluate = async (expression) => {
        const { result, exceptionDetails } = await to('Runtime.evaluate', { expression, awaitPromise: true, returnByValue: true });
        if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
        return result.value;
      };
      return {
        complaints,
        evaluate,
        async until(expression, ms = 10_000) {
          const end = Date.now() + ms;
          for (;;) {
            const value = await evaluate(expression).catch(() => undefined);
            if (value) return value;
            if (Date.now() > end) throw new Error(`not within ${ms} ms: ${expression}`);
            await new Promise((done) => setTimeout(done, 100));
          }
        },
        /** Limits the download rate of TCP, in bytes per second. -1: no limit. */
        async throttle(downloadThroughput) {
          await to('Network.enable');
          await to('Network.emulateNetworkConditions', { offline: false, latency, downloadThroughput, uploadThroughput: -1 });
        },
        async picture(file, whole = false) {
          const { data } = await to('Page.captureScreenshot', { captureBeyondViewport: whole });
          writeFileSync(file, Buffer.from(data, 'base64'));
        },
        async close() {
          listeners.delete(listen);
          await send('Target.closeTarget', { targetId });
        },
      };
    },
    async close() {
      running.delete(browser);
      const kill = setTimeout(() => child.kill('SIGKILL'), 5_000);
      send('Browser.close').catch(() => {});
      await gone;
      clearTimeout(kill);
      rmSync(profile, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
    },
  };
  running.add(browser);
  return browser;
}
