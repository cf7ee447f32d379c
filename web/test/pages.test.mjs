// The pages in a real browser, under the server's Content-Security-Policy, against the mock server.
// Skipped without Chromium, without the result of `make web`, and, for playback, without ffmpeg.
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import test, { after, before } from 'node:test';
import { closeBrowsers, has, hasBrowser, startBrowser } from './browser.mjs';
import { startMock } from './mock.mjs';

const built = existsSync(new URL('../dist/player.html', import.meta.url));
const browserMissing = built ? !hasBrowser() && 'no chromium' : 'make web has not run';
const playerMissing = browserMissing || (!has('ffmpeg', '-version') && 'no ffmpeg');
const TIMEOUT = { timeout: 60_000 };

let mock;
let browser;
before(async () => {
  if (browserMissing) return;
  mock = await startMock();
  browser = await startBrowser();
});
after(async () => {
  await closeBrowsers();
  mock?.close();
});
const open = (path, options) => browser.open(`http://127.0.0.1:${mock.port}/${path}`, options);
const text = (selector) => `document.querySelector(${JSON.stringify(selector)}).innerText`;

test('the dashboard shows an event as text, without browser errors', { skip: browserMissing, ...TIMEOUT }, async () => {
  for (const width of [1400, 400]) {
    const page = await open('', { width });
    await page.until("document.querySelectorAll('#sessions tbody tr').length === 40");
    assert.match(await page.evaluate(text('#streams')), /live\/<b>later<\/b>/);
    assert.match(await page.evaluate(text('#sessions')), /k alpha 2/);
    assert.match(await page.evaluate(text('#tiles')), /raise the socket buffers/);
    assert.match(await page.evaluate(text('#charts')), /autorec\s*\d+ ms/);
    assert.equal(await page.evaluate("document.querySelectorAll('#charts canvas').length"), 6);
    assert.ok(await page.evaluate('document.documentElement.scrollWidth <= innerWidth'), `no horizontal scrolling at ${width}`);
    assert.deepEqual(page.complaints, []);
    await page.close();
  }
});

test('a plot of twenty seconds starts at its left edge', { skip: browserMissing, ...TIMEOUT }, async () => {
  const young = await startMock(0, 20);
  const page = await browser.open(`http://127.0.0.1:${young.port}/`);
  // Position of the leftmost point in the first series' colour, as a share of the canvas.
  const leftmost = `(() => {
    const canvas = document.querySelector('#charts canvas');
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    for (let x = 0; x < canvas.width; x++) {
      for (let y = 0; y < canvas.height; y++) {
        const [r, g, b] = data.slice(4 * (y * canvas.width + x));
        if (b > 150 && b - r > 100 && g < b) return x / canvas.width;
      }
    }
    return null;
  })()`;
  const share = await page.until(leftmost);
  assert.ok(share < 0.25, `the line starts at ${share} of the width`);
  await page.close();
  young.close();
});

test('a table indicates hidden columns until it is scrolled to its end', { skip: browserMissing, ...TIMEOUT }, async () => {
  const more = (id) => `document.querySelector('#${id} .edge').dataset.more`;
  const page = await open('', { width: 390 });
  await page.until("document.querySelectorAll('#sessions tbody tr').length === 40");
  for (const id of ['streams', 'cohorts', 'sessions', 'hooks']) await page.until(`${more(id)} === 'true'`);
  assert.equal(await page.evaluate("getComputedStyle(document.querySelector('#sessions .edge'), '::before').opacity"), '1');
  await page.evaluate("document.querySelector('#sessions .scroll').scrollLeft = 1e6");
  await page.until(`${more('sessions')} === 'false'`);
  await page.close();
  const wide = await open('', { width: 1600 });
  await wide.until("document.querySelectorAll('#streams tbody tr').length === 5");
  await wide.until(`${more('streams')} === 'false'`);
  await wide.close();
});

test('columns of numbers are no wider than their content', { skip: browserMissing, ...TIMEOUT }, async () => {
  const page = await open('', { width: 1280 });
  await page.until("document.querySelectorAll('#sessions tbody tr').length === 40");
  const widths = await page.evaluate("[...document.querySelectorAll('#sessions th.right')].map((th) => [th.textContent, th.offsetWidth])");
  assert.ok(widths.length >= 8, JSON.stringify(widths));
  for (const [title, width] of widths) assert.ok(width < 130, `${title} is ${width} px wide`);
  await page.close();
});

test('the dashboard sorts by keyboard and filters its sessions', { skip: browserMissing, ...TIMEOUT }, async () => {
  const page = await open('');
  await page.until("document.querySelectorAll('#sessions tbody tr').length === 40");
  await page.evaluate("[...document.querySelectorAll('#sessions th button')].find((b) => b.textContent === 'RTT').click()");
  const rtts = await page.evaluate("[...document.querySelectorAll('#sessions tbody tr')].map((tr) => parseFloat(tr.cells[5].textContent))");
  assert.deepEqual(rtts, [...rtts].sort((a, b) => b - a));
  assert.equal(await page.evaluate("document.querySelector('#sessions th[aria-sort]').getAttribute('aria-sort')"), 'descending');
  await page.evaluate("(() => { const input = document.querySelector('#sessions input'); input.value = 'HTTP/2 concert'; input.dispatchEvent(new Event('input')); })()");
  assert.match(await page.evaluate(text('#sessions header')), /2 of 40 \(2 match\)/);
  await page.close();
});

test('the page of user groups shows a response as text, and the selected group', { skip: browserMissing, ...TIMEOUT }, async () => {
  for (const [width, dark] of [[1400, false], [390, true]]) {
    const page = await open('groups.html', { width, dark });
    await page.until("document.querySelectorAll('#groups tbody tr').length === 30");
    assert.match(await page.evaluate(text('#group')), /TR\/<b>AS9121<\/b>\/34\/İstanbul\s+Off for [^\n]+ treated viewers froze more: 1\.93 against 0\.71/);
    assert.match(await page.evaluate(text('#tiles')), /398 decided · 1 off/);
    assert.match(await page.evaluate(text('.more')), /382 smaller groups/);
    assert.equal(await page.evaluate("document.querySelector('#groups b, #group b')"), null);
    assert.equal(await page.evaluate("document.querySelectorAll('.steps .ground').length > 0 && document.querySelector('.steps .held').getAttribute('d').length > 100"), true);
    await page.evaluate("[...document.querySelectorAll('#groups tbody button')].find((b) => b.textContent.includes('Campinas')).click()");
    assert.match(await page.evaluate(text('#group')), /Campinas\s+At most [\d.]+ Mbit\/s and \d+ kB in flight/);
    assert.equal(await page.evaluate("document.querySelector('#groups tr[aria-current=true]').cells[0].textContent"), 'BR/AS28573/SP/Campinas');
    await page.evaluate("(() => { const input = document.querySelector('#groups input'); input.value = 'off'; input.dispatchEvent(new Event('input')); })()");
    assert.match(await page.evaluate(text('#groups header')), /1 of 30 \(1 match\)/);
    assert.ok(await page.evaluate('document.documentElement.scrollWidth <= innerWidth'), `no horizontal scrolling at ${width}`);
    assert.deepEqual(page.complaints, []);
    await page.close();
  }
});

test('the page of user groups reports AutoPlex off, a missing report, and a silent server in one line', { skip: browserMissing, ...TIMEOUT }, async () => {
  const ask = "document.dispatchEvent(new Event('visibilitychange'))";
  mock.groups({ mode: 'off', table: null, report: null });
  const page = await open('groups.html');
  await page.until("document.querySelectorAll('#notices li').length === 1");
  assert.equal((await page.evaluate(text('main'))).trim(), 'AutoPlex is off on this edge: no session is capped. [autoplex] mode turns it on.');
  mock.groups({ report: null, report_fault: 'report.json: it is damaged' });
  await page.evaluate(ask);
  await page.until("document.querySelector('#notices').innerText === 'report.json: it is damaged'");
  assert.deepEqual(page.complaints, []);
  mock.groups({});
  mock.silence(true);
  await page.evaluate(ask);
  await page.until("!document.getElementById('banner').hidden");
  mock.silence(false);
  await page.evaluate(ask);
  await page.until("document.getElementById('banner').hidden && document.querySelectorAll('#groups tbody tr').length === 30");
  await page.close();
});

test('the dashboard reports missing events, and recovers', { skip: browserMissing, ...TIMEOUT }, async () => {
  const page = await open('');
  await page.until("document.getElementById('link').textContent === '● live'", 20_000);
  mock.silence(true);
  await page.until("!document.getElementById('banner').hidden", 20_000);
  mock.silence(false);
  await page.until("document.getElementById('banner').hidden", 20_000);
  await page.close();
});

test('the player counts and reports the freezes of a paused stream', { skip: playerMissing, ...TIMEOUT }, async () => {
  const page = await open('player.html?stream=live/freezy&protocol=flv');
  // The stream pauses from 3.5 s to 6 s of every 6 s. The first pause meets a nearly empty buffer.
  await page.until("document.getElementById('state').textContent === 'frozen'", 15_000);
  await page.until("document.getElementById('state').textContent === 'playing'");
  const seen = await page.evaluate('window.mendcast');
  assert.equal(seen.freezes, 1);
  assert.ok(seen.freeze_s > 1 && seen.freeze_s < 3.5, `freeze_s ${seen.freeze_s}`);
  assert.ok(seen.first_frame_ms > 0 && seen.first_frame_ms < 5000, `first_frame_ms ${seen.first_frame_ms}`);
  assert.ok(seen.frames > 25 && seen.played_s > 1, JSON.stringify(seen));
  assert.equal(seen.next_hop, 'http/1.1');
  assert.deepEqual(page.complaints, []);
  await page.evaluate("location.href = 'about:blank'");
  for (let i = 0; i < 50 && !mock.beacons.some(({ viewer, final }) => viewer === seen.viewer && final); i++) await new Promise((done) => setTimeout(done, 100));
  const mine = mock.beacons.filter(({ viewer }) => viewer === seen.viewer);
  assert.ok(mine.at(-1)?.final, 'leaving the page posts a final beacon');
  assert.deepEqual(Object.keys(mine.at(-1)), ['viewer', 'stream', 'protocol', 'next_hop', 'first_frame_ms', 'played_s', 'freezes', 'freeze_s', 'buffer_ms', 'frames', 'dropped', 'final']);
  await page.close();
});

test('the player plays HLS', { skip: playerMissing, ...TIMEOUT }, async () => {
  const page = await open('player.html?stream=live/demo&protocol=hls');
  await page.until('window.mendcast?.played_s > 2', 30_000);
  assert.deepEqual(page.complaints, []);
  await page.close();
});

test('the end of a stream is not a freeze, and the player resumes with the stream', { skip: playerMissing, ...TIMEOUT }, async () => {
  const page = await open('player.html?stream=live/short');
  await page.until("document.getElementById('message-text').textContent.includes('has ended')", 15_000);
  const atEnd = await page.evaluate('window.mendcast');
  assert.equal(atEnd.final, true);
  assert.equal(atEnd.freezes, 0);
  await page.until(`window.mendcast.frames > ${atEnd.frames + 25} && !window.mendcast.final`, 15_000);
  await page.close();
});

test('a broken connection is a freeze until the picture returns', { skip: playerMissing, ...TIMEOUT }, async () => {
  const page = await open('player.html?stream=live/broken');
  await page.until("document.getElementById('message-text').textContent.includes('connection broke')", 15_000);
  await page.until("document.getElementById('state').textContent === 'playing'");
  const seen = await page.evaluate('window.mendcast');
  assert.equal(seen.freezes, 1);
  assert.ok(seen.freeze_s > 0.4 && seen.freeze_s < 6, `freeze_s ${seen.freeze_s}`);
  await page.close();
});

test('the player reports an unsupported codec, and does not retry', { skip: playerMissing, ...TIMEOUT }, async () => {
  // Once the library does not support the codec, once the browser.
  const before = "MediaSource.prototype.addSourceBuffer = () => { throw new DOMException('The type provided (video/mp4;codecs=hvc1) is unsupported.', 'NotSupportedError'); };";
  for (const [stream, options] of [['live/sorenson', {}], ['live/demo', { before }]]) {
    const page = await open(`player.html?stream=${stream}`, options);
    await page.until("!document.getElementById('message').hidden");
    assert.match(await page.evaluate(text('#message-text')), /This browser cannot decode/);
    assert.equal(await page.evaluate(text('#state')), 'stopped');
    assert.deepEqual(page.complaints, []);
    await page.close();
  }
});

test('the player reports missing, forbidden and invalid streams', { skip: browserMissing, ...TIMEOUT }, async () => {
  for (const [query, words, retries] of [
    ['stream=live/none', /The stream “live\/none” is offline.*404/, true],
    ['stream=live/none&protocol=hls', /The stream “live\/none” is offline.*404/, true],
    ['stream=live/forbidden', /denies access/, false],
    ['stream=../etc', /is invalid/, false],
  ]) {
    const page = await open(`player.html?${query}`, { width: 400 });
    await page.until("!document.getElementById('message').hidden");
    await page.until(`document.getElementById('message-next').textContent.startsWith('Next') === ${retries}`);
    assert.match(await page.evaluate(text('#message-text')), words);
    await page.close();
  }
});

test('players side by side fit into a row or a column, in both colour schemes', { skip: browserMissing, ...TIMEOUT }, async () => {
  const players = ['arq', 'spare', 'autorec', 'a-name-without-any-place-to-break-it-at'].map((name, i) => `player=${name}=https://127.0.0.1:${i + 1}`).join('&');
  for (const [width, dark, across] of [[1280, false, 4], [1280, true, 4], [390, true, 1]]) {
    const page = await open(`side-by-side.html?stream=live/demo&${players}`, { width, dark });
    await page.until("document.querySelectorAll('section .freezes').length === 4");
    assert.ok(await page.evaluate('document.documentElement.scrollWidth <= innerWidth'), `no horizontal scrolling at ${width}`);
    assert.equal(await page.evaluate("new Set([...document.querySelectorAll('section')].map((one) => one.offsetLeft)).size"), across, `at ${width}`);
    assert.ok(await page.evaluate("[...document.querySelectorAll('video')].every((video) => video.muted)"));
    await page.close();
  }
});

test('players side by side report an invalid address', { skip: browserMissing, ...TIMEOUT }, async () => {
  for (const [query, words] of [['', /^player occurs 0 times/], ['player=a=http://b.test', /^player is “a=http/], ['buffer_ms=1&player=a=https://b.test', /^buffer_ms is “1”/], ['protocol=hls&player=a=https://b.test', /^protocol is/]]) {
    const page = await open(`side-by-side.html?${query}`, { width: 390 });
    await page.until("!document.getElementById('fault').hidden");
    assert.match(await page.evaluate(text('#fault')), words);
    assert.equal(await page.evaluate("document.querySelectorAll('section').length"), 0);
    assert.ok(await page.evaluate('document.documentElement.scrollWidth <= innerWidth'), query);
    assert.deepEqual(page.complaints, []);
    await page.close();
  }
});
