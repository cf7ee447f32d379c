import assert from 'node:assert/strict';
import test from 'node:test';
import { Feed, LATE_MS, LONGEST_WAIT_MS, SILENT_MS } from '../src/feed.js';

function set() {
  const sources = [];
  const got = [];
  const open = () => {
    const source = { readyState: 0, closed: false, close() { this.closed = true; } };
    sources.push(source);
    return source;
  };
  return { sources, got, feed: new Feed(open, (data) => got.push(data), 0) };
}

test('events arrive as objects and keep the feed live', () => {
  const { feed, got, sources } = set();
  for (let now = 0; now < 60_000; now += 1000) {
    feed.heard('{"viewers":1}', now);
    feed.tick(now);
    assert.equal(feed.state(now).state, 'live');
  }
  assert.equal(got.length, 60);
  assert.equal(sources.length, 1);
});

test('a silent connection is reported, then replaced', () => {
  const { feed, sources } = set();
  feed.heard('{}', 1000);
  assert.equal(feed.state(1000 + LATE_MS).state, 'live');
  assert.deepEqual(feed.state(1001 + LATE_MS), { state: 'late', silentS: 3 });
  for (let now = 1000; now <= 1000 + SILENT_MS; now += 500) feed.tick(now);
  assert.equal(sources.length, 1);
  feed.tick(1500 + SILENT_MS);
  assert.equal(sources[0].closed, true);
  feed.tick(2500 + SILENT_MS);
  assert.equal(sources.length, 2);
  feed.heard('{}', 3000 + SILENT_MS);
  assert.equal(feed.state(3000 + SILENT_MS).state, 'live');
});

test('a source closed by the browser is reopened after growing delays', () => {
  const { feed, sources } = set();
  const opened = [];
  for (let now = 0; now < 120_000; now += 1000) {
    sources.at(-1).readyState = 2;
    const before = sources.length;
    feed.tick(now);
    if (sources.length > before) opened.push(now);
  }
  const waits = opened.map((now, i) => now - (opened[i - 1] ?? 0)).slice(1);
  assert.ok(waits.every((wait, i) => i === 0 || wait >= waits[i - 1]), String(waits));
  assert.ok(waits.at(-1) >= LONGEST_WAIT_MS && waits.at(-1) <= LONGEST_WAIT_MS + 1000, String(waits));
});

test('invalid JSON is reported, not thrown, until the next valid event', () => {
  const { feed, got } = set();
  for (const text of ['<html>', '', 'null', '3']) {
    feed.heard(text, 1000);
    assert.equal(feed.state(1000).state, 'unreadable', text);
  }
  assert.deepEqual(got, []);
  feed.heard('{"a":1}', 2000);
  assert.equal(feed.state(2000).state, 'live');
  assert.deepEqual(got, [{ a: 1 }]);
});
