// Tables updated in place every second. A row keeps its element while its key exists, so that focus,
// selection and scroll position stay. Columns are data; text from the server is never inserted as HTML.

/**
 * Sorts rows by `value(row)`, numbers by size and others by text. Missing values come last in both
 * directions, and equal rows keep the server's order.
 */
export function sortRows(rows, value, descending) {
  const sign = descending ? -1 : 1;
  const absent = (x) => x === null || x === undefined || Number.isNaN(x);
  return rows
    .map((row) => [value(row), row])
    .sort(([a], [b]) => {
      if (absent(a) || absent(b)) return absent(a) - absent(b);
      if (typeof a === 'number' && typeof b === 'number') return sign * (a - b);
      return sign * String(a).localeCompare(String(b), 'en', { numeric: true });
    })
    .map(([, row]) => row);
}

/** Rows that contain each of `words` in some cell, ignoring case. */
export function filterRows(rows, words, texts) {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  if (!wanted.length) return rows;
  return rows.filter((row) => {
    const text = texts(row).join('\n').toLowerCase();
    return wanted.every((word) => text.includes(word));
  });
}

const element = (tag, className = '', text = '') => {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text) node.textContent = text;
  return node;
};

export class Table {
  #spec;
  #rows = [];
  #sort = null;
  #chosen = null;
  #trs = new Map();
  #nodes = {};

  /**
   * `host` is an empty section. `spec`: `title`, `note` (next to it), `empty` (text without rows), `key(row)`,
   * `tone(row)` (a row's data-tone), `limit` (maximum rows), `filter` (whether to show a filter), `choose(row)` (called
   * when a row is selected) and `columns` of `{ title, hint, right, wrap, mono, value(row), cell(row) }`. `cell` returns
   * `{ text, tone, note, badge, badgeTone }` or a string; without it the value is the text.
   */
  constructor(host, spec) {
    this.#spec = spec;
    const head = element('header');
    const count = element('span', 'muted');
    head.append(element('h2', '', spec.title), count);
    if (spec.note) head.append(element('span', 'muted note', spec.note));
    const filter = element('input');
    if (spec.filter) {
      filter.type = 'search';
      filter.placeholder = 'Filter';
      filter.setAttribute('aria-label', `Filter ${spec.title.toLowerCase()}`);
      filter.addEventListener('input', () => this.#render());
      head.append(filter);
    }
    const table = element('table');
    const headings = spec.columns.map((column, index) => {
      const th = element('th', column.right ? 'right' : '');
      th.scope = 'col';
      const button = element('button', '', column.title);
      button.type = 'button';
      if (column.hint) button.title = column.hint;
      button.addEventListener('click', () => this.#sortBy(index));
      th.append(button);
      return th;
    });
    const row = element('tr');
    row.append(...headings);
    const thead = element('thead');
    thead.append(row);
    const body = element('tbody');
    if (spec.choose) {
      body.classList.add('choice');
      body.addEventListener('click', ({ target }) => {
        const row = target.closest('tr')?.row;
        if (!row) return;
        this.choose(spec.key(row));
        spec.choose(row);
      });
    }
    table.append(thead, body);
    const scroll = element('div', 'scroll');
    scroll.tabIndex = 0;
    scroll.setAttribute('role', 'region');
    scroll.setAttribute('aria-label', spec.title);
    scroll.append(table);
    const edge = element('div', 'edge');
    edge.append(scroll);
    // Indicates columns beyond the right edge, because phones show no scroll bars.
    const hint = () => {
      edge.dataset.more = String(scroll.scrollLeft + scroll.clientWidth < scroll.scrollWidth - 1);
    };
    scroll.addEventListener('scroll', hint, { passive: true });
    const resized = new ResizeObserver(hint);
    resized.observe(scroll);
    resized.observe(table);
    const empty = element('p', 'empty', spec.empty);
    host.classList.add('table');
    host.setAttribute('aria-label', spec.title);
    host.append(head, edge, empty);
    this.#nodes = { count, filter, headings, body, scroll, empty };
    this.#render();
  }

  update(rows) {
    this.#rows = Array.isArray(rows) ? rows : [];
    this.#render();
  }

  /** Marks the row with this key as selected. */
  choose(key) {
    this.#chosen = key;
    this.#render();
  }

  /** Cycles the order: descending for numbers or ascending for text, then reversed, then the server's order. */
  #sortBy(index) {
    const first = Boolean(this.#spec.columns[index].right);
    if (this.#sort?.index !== index) this.#sort = { index, descending: first };
    else if (this.#sort.descending === first) this.#sort.descending = !first;
    else this.#sort = null;
    this.#nodes.headings.forEach((th, i) => {
      if (this.#sort?.index === i) th.setAttribute('aria-sort', this.#sort.descending ? 'descending' : 'ascending');
      else th.removeAttribute('aria-sort');
    });
    this.#render();
  }

  #render() {
    const { columns, key, tone, limit = 200, choose } = this.#spec;
    const { count, filter, body, scroll, empty } = this.#nodes;
    let rows = filterRows(this.#rows, filter.value, (row) => columns.map((column) => parts(column, row).text));
    const found = rows.length;
    if (this.#sort) rows = sortRows(rows, columns[this.#sort.index].value, this.#sort.descending);
    rows = rows.slice(0, limit);
    const trs = new Map();
    let place = body.firstElementChild;
    rows.forEach((row, index) => {
      // Keys should be unique. If a server repeats one, its position is appended.
      const id = trs.has(key(row)) ? `${key(row)}\u0000${index}` : key(row);
      const tr = this.#trs.get(id) ?? this.#newRow();
      trs.set(id, tr);
      tr.dataset.tone = tone?.(row) ?? '';
      tr.row = row;
      if (choose) tr.setAttribute('aria-current', String(key(row) === this.#chosen));
      columns.forEach((column, i) => fill(tr.cells[i], parts(column, row), choose && i === 0 ? 'button' : 'span'));
      if (tr === place) place = place.nextElementSibling;
      else body.insertBefore(tr, place);
    });
    for (const [id, tr] of this.#trs) if (trs.get(id) !== tr) tr.remove();
    this.#trs = trs;
    scroll.hidden = rows.length === 0;
    empty.hidden = rows.length !== 0;
    empty.textContent = this.#rows.length ? 'Nothing matches the filter.' : this.#spec.empty;
    const all = this.#rows.length;
    count.textContent = rows.length < all ? `${rows.length} of ${all}${found < all ? ` (${found} match)` : ''}` : String(all);
  }

  #newRow() {
    const tr = element('tr');
    tr.append(...this.#spec.columns.map(({ right, wrap, mono }) => element('td', [right && 'right', wrap && 'wrap', mono && 'mono'].filter(Boolean).join(' '))));
    return tr;
  }
}

function parts(column, row) {
  const cell = column.cell ? column.cell(row) : String(column.value(row) ?? '–');
  return typeof cell === 'string' ? { text: cell } : cell;
}

/** Writes a cell if it has changed. */
function fill(td, { text, tone = '', note = '', badge = '', badgeTone = 'warn' }, tag) {
  const said = [text, tone, note, badge, badgeTone].join('\u0000');
  if (td.said === said) return;
  td.said = said;
  const main = element(tag, '', text);
  if (tag === 'button') main.type = 'button';
  main.dataset.tone = tone;
  td.replaceChildren(main);
  if (badge) {
    const mark = element('span', 'badge', badge);
    mark.dataset.tone = badgeTone;
    td.append(mark);
  }
  if (note) td.append(element('small', '', note));
}
