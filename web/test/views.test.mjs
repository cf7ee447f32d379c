import assert from 'node:assert/strict';
import test from 'node:test';
import { filterRows, sortRows } from '../src/tables.js';
import { charts, cohortOrder, corrections, tables, tiles } from '../src/views.js';
import { inventedEvent } from './mock.mjs';

const cellText = (column, row) => {
  const cell = column.cell ? column.cell(row) : String(column.value(row) ?? '–');
  return typeof cell === 'string' ? cell : cell.text;
};

test('every cell, tile and chart has text for a complete event and for an empty one', () => {
  for (const event of [inventedEvent(1_700_000_000), {}, { viewers: null, cohorts: [{}], streams: [{}], sessions: [{}], hooks: [{}] }]) {
    const said = [
      ...tiles(event).flatMap(({ title, value, note = '' }) => [title, value, note]),
      ...Object.entries(tables).flatMap(([name, { columns }]) => (event[name] ?? []).flatMap((row) => columns.map((column) => cellText(column, row)))),
    ];
    for (const text of said) {
      assert.equal(typeof text, 'string');
      assert.doesNotMatch(text, /undefined|NaN|null|\[object/);
    }
    for (const { values } of charts) {
      for (const value of Object.values(values(event))) assert.ok(value === null || value === undefined || Number.isFinite(value));
    }
  }
});

test('a session shows the replicas of its scheme, and the reasons', () => {
  const cell = (title, row) => tables.sessions.columns.find((column) => column.title === title).cell(row);
  const repair = { level: 2, k_alpha: 2, loss_rate: 0.0512 };
  assert.equal(cell('Replicas', { repair }), '2');
  assert.equal(cell('Reasons', { repair }).text, 'k alpha 2 · loss rate 0.051');
  for (const row of [{}, { repair: { level: 0 } }]) assert.equal(cell('Reasons', row).text, '–');
});

test('a tile shows the share of known paths, and warns if most jumps fail', () => {
  const tile = (cookies) => tiles({ cookies }).find(({ title }) => title === 'Known paths');
  assert.deepEqual(tile({ accepted: 6, refused: { expired: 1, spent: 1 }, strangers: 4, jumps: { passed: 5, failed: 1 } }), {
    title: 'Known paths', value: '50.0 %', note: '4 new · 2 refused · 1 jumps failed', tone: '',
  });
  assert.equal(tile({ accepted: 6, refused: {}, strangers: 0, jumps: { passed: 1, failed: 2 } }).tone, 'warn');
});

test('cohorts keep the server’s order, which determines their colours', () => {
  assert.deepEqual(cohortOrder({ cohorts: [{ name: 'b' }, { name: 'a' }] }), ['b', 'a']);
});

test('rows sort by size or text, and missing values come last in both directions', () => {
  const rows = [{ v: 3 }, { v: null }, { v: 20 }, { v: undefined }, { v: 1 }];
  const values = (sorted) => sorted.map(({ v }) => v ?? '-').join(' ');
  assert.equal(values(sortRows(rows, ({ v }) => v, false)), '1 3 20 - -');
  assert.equal(values(sortRows(rows, ({ v }) => v, true)), '20 3 1 - -');
  const names = [{ v: 'live/b10' }, { v: 'live/b9' }, { v: 'Live/a' }];
  assert.equal(values(sortRows(names, ({ v }) => v, false)), 'Live/a live/b9 live/b10');
});

test('a filter requires each of its words in some cell', () => {
  const rows = [{ a: 'live/demo', b: 'HTTP/3' }, { a: 'live/demo', b: 'HTTP/2' }];
  const find = (words) => filterRows(rows, words, ({ a, b }) => [a, b]).length;
  assert.deepEqual(['', 'demo', 'http/3 DEMO', 'demo concert'].map(find), [2, 2, 1, 0]);
});

test('corrections of a stream are listed by kind', () => {
  assert.equal(corrections({ corrections: { start_codes: 300, adts: 0, empty_units: 1 } }), 'start codes 300 · empty units 1');
  for (const row of [{}, { corrections: {} }, { corrections: { adts: NaN } }]) assert.equal(corrections(row), '');
});
