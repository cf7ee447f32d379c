import assert from 'node:assert/strict';
import test from 'node:test';
import * as format from '../src/format.js';

test('missing values are a dash in every format', () => {
  for (const name of ['number', 'percent', 'milliseconds', 'seconds', 'duration', 'rate', 'megabytes']) {
    for (const value of [null, undefined, NaN, Infinity, '3', {}]) assert.equal(format[name](value), '–', `${name} of ${value}`);
  }
});

test('values are formatted for people', () => {
  const cases = [
    [format.number(1234567), '1\u202f234\u202f567'],
    [format.number(1234.5678, 2), '1\u202f234.57'],
    [format.number(-5.25, 1), '−5.3'],
    [format.number(-0.01, 1), '0.0'],
    [format.percent(0), '0 %'],
    [format.percent(0.0512), '5.1 %'],
    [format.percent(0.0004), '0.04 %'],
    [format.milliseconds(180.4), '180 ms'],
    [format.milliseconds(12_345), '12.3 s'],
    [format.seconds(0), '0 s'],
    [format.seconds(1.234), '1.23 s'],
    [format.seconds(75), '1 min 15 s'],
    [format.duration(59.9), '59 s'],
    [format.duration(3_661), '1 h 01 min'],
    [format.duration(93_784), '1 d 02 h'],
    [format.rate(0), '0 Mbit/s'],
    [format.rate(0.25), '250 kbit/s'],
    [format.rate(3.14), '3.1 Mbit/s'],
    [format.rate(2500), '2.50 Gbit/s'],
    [format.megabytes(21), '21.0 MB'],
    [format.megabytes(1234), '1.23 GB'],
  ];
  for (const [got, wanted] of cases) assert.equal(got, wanted);
});
