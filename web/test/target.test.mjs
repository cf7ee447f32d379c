import assert from 'node:assert/strict';
import test from 'node:test';
import { Backoff, describeFailure, kindOfStatus, mediaUrl, parseTarget, viewerPass } from '../src/target.js';

const url = (search) => mediaUrl(parseTarget(search), 'v1');

test('the media address is derived from the page’s', () => {
  assert.equal(url(''), '/live/demo.flv?viewer=v1');
  assert.equal(url('?stream=live/demo&protocol=hls'), '/live/demo/index.m3u8?viewer=v1');
  assert.equal(url('?stream=live/a%20b%3Fc%23d&token=s%26t'), '/live/a%20b%3Fc%23d.flv?token=s%26t&viewer=v1');
  assert.equal(url('?viewer=mine'), '/live/demo.flv?viewer=v1');
});

test('a stream’s name cannot lead to another origin or directory', () => {
  for (const stream of ['', '/', '//evil.example/x', 'live//x', '../x', 'live/../x', './x', 'live/']) {
    assert.throws(() => url(`?stream=${encodeURIComponent(stream)}`), /stream .* is invalid/, stream);
  }
  for (const protocol of ['rtmp', '', 'constructor']) assert.throws(() => url(`?protocol=${protocol}`), /protocol .* is unknown/, protocol);
});

test('the viewer’s pass is in the page, or requested', async () => {
  const page = (content) => ({ querySelector: () => (content === null ? null : { content }) });
  const asked = [];
  const answer = (ok) => async (path) => (asked.push(path), { ok, status: 404, text: async () => 'asked' });
  assert.equal(await viewerPass(page('given'), answer(true)), 'given');
  assert.deepEqual(asked, []);
  assert.equal(await viewerPass(page(''), answer(true)), 'asked');
  assert.equal(await viewerPass(page(null), answer(true)), 'asked');
  assert.deepEqual(asked, ['/viewer', '/viewer']);
  await assert.rejects(viewerPass(page(''), answer(false)), /HTTP 404/);
});

test('waits double from one second to thirty, spread over their upper half', () => {
  const longest = new Backoff(() => 1);
  assert.deepEqual(Array.from({ length: 8 }, () => longest.next()), [1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000]);
  longest.reset();
  assert.equal(longest.next(), 1000);
  assert.equal(new Backoff(() => 0).next(), 500);
});

test('failures have a message and say whether to retry', () => {
  const target = parseTarget('?stream=live/x');
  const kinds = { 404: 'missing', 410: 'missing', 401: 'refused', 403: 'refused', 429: 'busy', 503: 'busy', 500: 'status', 400: 'status' };
  for (const [status, kind] of Object.entries(kinds)) assert.equal(kindOfStatus(Number(status)), kind);
  assert.deepEqual(describeFailure('missing', target, 'HTTP 404'), { text: 'The stream “live/x” is offline. (HTTP 404)', retry: true, away: true });
  for (const kind of ['codec', 'refused', 'unsupported']) assert.equal(describeFailure(kind, target).retry, false);
  assert.equal(describeFailure('network', target).away, false);
});
