import assert from 'node:assert/strict';
import test from 'node:test';
import { coarse, comparison, counted, first, groups, leftOut, notices, table, tiles, told, why } from '../src/group-views.js';
import { at, marks, path, steps, ticks } from '../src/steps.js';
import { inventedGroups } from './mock.mjs';

const NOW = 1_800_000_000;
const cellTexts = (column, row) => {
  const cell = column.cell ? column.cell(row) : String(column.value(row) ?? '–');
  return typeof cell === 'string' ? [cell] : [cell.text, cell.note ?? ''];
};
const words = (answer) => notices(answer).map(({ text }) => text).join('\n');

test('every cell, tile and line has text for a complete response, an empty one and a report of another release', () => {
  const odd = [null, 7, {}, { name: null, off: {}, treated: [], rates: 'x' }, { name: 'a', rate: 'fast', off: { why: [{}], by: 'b', treated: null } }];
  const whole = inventedGroups(NOW);
  for (const answer of [whole, {}, { mode: 'off' }, { ...whole, table: null, sessions: null, report: { shown: odd } }, { ...whole, report: { shown: 'x' } }, { ...whole, report: [] }]) {
    const said = [
      ...notices(answer).map(({ text }) => text),
      ...tiles(answer).flatMap(({ title, value, note = '' }) => [title, value, note]),
      ...groups(answer).flatMap((group) => [
        ...table.columns.flatMap((column) => cellTexts(column, group)), why(group), told(group), counted(group), ...comparison(group).flat(),
      ]),
      leftOut(answer.report),
    ];
    for (const text of said) {
      assert.equal(typeof text, 'string');
      assert.doesNotMatch(text, /undefined|NaN|null|\[object/);
    }
  }
  assert.equal(groups(whole).length, 30);
});

test('a group states why it is off, and names an enclosing group that is off', () => {
  const group = groups(inventedGroups(NOW)).find(({ off }) => off);
  assert.equal(why(group), 'treated viewers froze more: 1.93 against 0.71 per 100 s');
  assert.equal(first(groups(inventedGroups(NOW))).name, group.name);
  assert.match(told(group), /^Off for 4 h, treated viewers froze more/);
  const off = { by: 'BR', since: NOW - 60, why: ['freezes', 'first_frame'], treated: { freezes_per_100_s: 2, first_frame_ms: 300 }, holdout: { freezes_per_100_s: 1, first_frame_ms: 200 } };
  assert.equal(why({ name: 'BR/AS1', off }), 'with BR, treated viewers froze more: 2.00 against 1.00 per 100 s; their first frame came later: 300 ms against 200 ms');
  assert.equal(why({ name: 'BR', off: { by: 'BR', why: [] } }), 'reason unknown');
});

test('bytes in flight have a suitable unit', () => {
  const cell = (in_flight) => table.columns.find(({ title }) => title === 'In flight').cell({ in_flight }).text;
  assert.deepEqual([2_400, 74_600, 1_300_000, null].map(cell), ['2 kB', '75 kB', '1.3 MB', '–']);
});

test('notices state why sessions are not capped', () => {
  const whole = inventedGroups(NOW);
  assert.equal(words(whole), '');
  assert.match(words({ mode: 'off' }), /^AutoPlex is off on this edge[^\n]*$/);
  assert.match(words({ ...whole, mode: 'demand' }), /3\.0 times their stream’s own rate/);
  assert.match(words({ ...whole, table: null }), /No table is in force/);
  assert.match(words({ ...whole, table: { ...whole.table, age_s: 7_201 } }), /was decided 2 h ago and was valid for 2 h/);
  assert.match(words({ ...whole, table: { ...whole.table, decided: NOW - 9_000 } }), /another decision \(30 min ago\) than the table \(2 h 30 min ago\)/);
  assert.match(words({ ...whole, report: null, report_fault: 'report.json: it is damaged' }), /^report\.json: it is damaged$/);
});

test('durations have one or two units', () => {
  assert.deepEqual([0, 59, 60, 119, 1800, 7200, 9000, 86400, 90000, null].map(coarse), ['0 s', '59 s', '1 min', '1 min', '30 min', '2 h', '2 h 30 min', '1 d', '1 d 01 h', '–']);
});

test('a decision is in force until the next one or the end of its lifetime', () => {
  const all = steps({ ends: [0, 10, 20, 60], rates: [1, 2, null, 3], offs: [0, 1, 0, 0], lifetimeS: 30, until: 65 });
  assert.deepEqual(all, [
    { from: 0, to: 10, rate: 1, off: false },
    { from: 10, to: 20, rate: 2, off: true },
    { from: 60, to: 65, rate: 3, off: false },
  ]);
  assert.deepEqual(steps({ ends: [0, 100], rates: [1, 2], offs: [], lifetimeS: 30, until: 500 }).map(({ from, to }) => [from, to]), [[0, 30], [100, 130]]);
  assert.deepEqual([-1, 5, 15, 30, 62].map((time) => at(all, time)?.rate), [undefined, 1, 2, undefined, 3]);
  for (const ends of [undefined, 'x', [null], []]) assert.deepEqual(steps({ ends, rates: undefined, lifetimeS: 1, until: 1 }), []);
});

test('lines follow the steps and break at gaps and between capped and off', () => {
  const all = steps({ ends: [0, 10, 20, 30], rates: [1, 2, 2, 4], offs: [0, 0, 1, 0], lifetimeS: 30, until: 40 });
  const same = (value) => value;
  assert.equal(path(all, false, same, same), 'M0 1L10 1L10 2L20 2M30 4L40 4');
  assert.equal(path(all, true, same, same), 'M20 2L30 2');
});

test('axes have a few round numbers and full hours', () => {
  assert.deepEqual(marks(9.6), [0, 2.5, 5, 7.5, 10]);
  assert.deepEqual(marks(0.3), [0, 0.1, 0.2, 0.3]);
  assert.deepEqual(marks(0), [0, 1]);
  for (const max of [1e-3, 0.77, 1, 3.2, 41, 999, 1e9]) {
    const values = marks(max);
    assert.ok(values.length >= 3 && values.length <= 5 && values.at(-1) >= max, `${max}: ${values}`);
  }
  for (const hours of [0.5, 10, 48, 500]) {
    const times = ticks(NOW, NOW + hours * 3600, 8);
    assert.ok(times.length >= 2 && times.length <= 9, `${hours}: ${times.length}`);
    assert.ok(times.every((time) => new Date(time * 1000).getMinutes() % 15 === 0));
  }
});
