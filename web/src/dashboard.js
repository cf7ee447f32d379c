// The dashboard: reads `api/events` and shows each event in tiles, charts and tables.
import { Chart } from './charts.js';
import { Feed } from './feed.js';
import { duration } from './format.js';
import { Table } from './tables.js';
import { Tiles } from './tiles.js';
import { charts, cohortOrder, tables, tiles } from './views.js';

const $ = (id) => document.getElementById(id);
const drawn = charts.map((spec) => ({ spec, chart: new Chart($('charts'), spec) }));
const shown = Object.entries(tables).map(([name, spec]) => ({ name, table: new Table($(name), spec) }));

const headline = new Tiles($('tiles'), tiles({}));

function show(event) {
  headline.update(tiles(event));
  const order = cohortOrder(event);
  for (const { spec, chart } of drawn) {
    const values = spec.values(event);
    chart.push(event.time_ms / 1000, values, spec.cohorts ? order : Object.keys(values));
  }
  for (const { name, table } of shown) table.update(event[name]);
  $('about').textContent = `${event.version ?? ''} · up ${duration(event.uptime_s)}`;
}

// The banner's text does not change while shown, so that a screen reader reads it once.
const WORDS = {
  live: { badge: () => '● live', tone: 'good', banner: '' },
  late: {
    badge: (silentS) => `○ no data for ${duration(silentS)}`,
    tone: 'bad',
    banner: 'No data from the server. The values shown are old. Reconnecting.',
  },
  unreadable: {
    badge: () => '○ unreadable',
    tone: 'bad',
    banner: 'The server sends data that this page cannot read: reload the page if the server was updated.',
  },
};

function open() {
  const source = new EventSource('api/events');
  source.onmessage = ({ data }) => {
    feed.heard(data, performance.now());
    tell();
  };
  return source;
}

function tell() {
  const { state, silentS } = feed.state(performance.now());
  const { badge, tone, banner } = WORDS[state];
  $('link').textContent = badge(silentS);
  $('link').dataset.tone = tone;
  $('banner').hidden = banner === '';
  if ($('banner').textContent !== banner) $('banner').textContent = banner;
}

const feed = new Feed(open, show, performance.now());
setInterval(() => {
  feed.tick(performance.now());
  tell();
}, 1000);
