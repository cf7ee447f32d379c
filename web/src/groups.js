// The page of user groups: polls `api/autoplex` twice a minute while the page is visible, and shows notices, headline
// numbers, the selected group and the table. Text from files is never inserted as HTML.
import { duration } from './format.js';
import { bps, comparison, counted, first, groups, leftOut, notices, table as spec, tiles, told } from './group-views.js';
import { Steps, steps } from './steps.js';
import { Table } from './tables.js';
import { Tiles } from './tiles.js';

/** Polling interval. Decisions change twice an hour, counts of this edge all the time. */
const PERIOD_MS = 30_000;
const TIMEOUT_MS = 10_000;

const $ = (id) => document.getElementById(id);
const element = (tag, className = '', text = '') => {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.textContent = text;
  return made;
};

let answer = {};
let heardAt = performance.now();
/** Name of the selected group. */
let chosen = null;
const choose = ({ name }) => {
  chosen = name;
  show();
};

const headline = new Tiles($('tiles'), tiles({}));
const table = new Table($('groups'), { ...spec, choose });
const more = element('p', 'more');
$('groups').append(more);

const panel = { name: element('h2'), why: element('p', 'why'), sides: element('div', 'sides'), chart: element('div'), reading: element('p', 'reading') };
$('group').append(panel.name, panel.why, panel.chart, panel.reading, panel.sides);
const chart = new Steps(panel.chart, (value) => String(value / 1e6), (step, time) => {
  panel.reading.textContent = step ? reading(step, time) : LEGEND;
});
const LEGEND = 'Cap in Mbit/s; dashed while off.';

const reading = ({ rate, off }, time) => {
  const when = new Date(time * 1000).toLocaleString('en-GB', { day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit' });
  return `${when}: ${bps(rate)}${off ? ', off' : ''}`;
};

/** Shows the selected group, or the default one if it does not exist. */
function show() {
  const all = groups(answer);
  const group = all.find(({ name }) => name === chosen) ?? first(all);
  $('group').hidden = !group;
  if (!group) return;
  table.choose(group.name);
  panel.name.textContent = group.name;
  panel.why.textContent = told(group);
  panel.why.dataset.tone = group.off ? 'bad' : '';
  panel.sides.replaceChildren(sides(group));
  const { report } = answer;
  const history = steps({ ends: report.ends, rates: group.rates, offs: group.offs, lifetimeS: report.lifetime_s, until: answer.time_ms / 1000 });
  const rates = history.map(({ rate }) => rate);
  chart.update(history, rates.length ? `Cap over time, from ${bps(Math.min(...rates))} to ${bps(Math.max(...rates))}` : 'No parameters yet');
  panel.reading.textContent = LEGEND;
}

/** Outcomes of treated viewers and of the hold-out. */
function sides(group) {
  const made = element('table');
  made.createCaption().textContent = counted(group);
  const heading = made.createTHead().insertRow();
  const cell = (row, tag, text, scope = '') => {
    const one = element(tag, '', text);
    if (scope) one.scope = scope;
    row.append(one);
  };
  for (const text of ['', 'Treated', 'Hold-out']) cell(heading, 'th', text, 'col');
  const body = made.createTBody();
  for (const [title, ...values] of comparison(group)) {
    const row = body.insertRow();
    cell(row, 'th', title, 'row');
    for (const value of values) cell(row, 'td', value);
  }
  return made;
}

function update(next) {
  answer = next;
  heardAt = performance.now();
  $('notices').replaceChildren(...notices(answer).map(({ text, tone }) => {
    const line = element('li', '', text);
    line.dataset.tone = tone;
    return line;
  }));
  const hasReport = answer.report !== null && typeof answer.report === 'object';
  // If AutoPlex is off and nothing was decided, the notice suffices.
  $('tiles').hidden = answer.mode === 'off' && !hasReport;
  $('groups').hidden = !hasReport;
  headline.update(tiles(answer));
  table.update(groups(answer));
  more.textContent = leftOut(answer.report);
  more.hidden = more.textContent === '';
  show();
}

async function ask() {
  if (document.hidden) return;
  try {
    const response = await fetch('api/autoplex', { cache: 'no-store', signal: AbortSignal.timeout(TIMEOUT_MS) });
    if (!response.ok) throw new Error(`${response.status}`);
    const next = await response.json();
    if (next === null || typeof next !== 'object') throw new Error('no object');
    update(next);
    tell('● up to date', 'good', '');
  } catch {
    const silent = duration((performance.now() - heardAt) / 1000);
    tell(`○ no data for ${silent}`, 'bad', 'No data from the server. The values shown are old. Retrying.');
  }
}

// The banner's text does not change while shown, so that a screen reader reads it once.
function tell(badge, tone, banner) {
  $('link').textContent = badge;
  $('link').dataset.tone = tone;
  $('banner').hidden = banner === '';
  if ($('banner').textContent !== banner) $('banner').textContent = banner;
}

ask();
setInterval(ask, PERIOD_MS);
document.addEventListener('visibilitychange', ask);
