// Builds web/dist, the files embedded in the server: pages at the top, and the files of each page in a
// separate directory, so that the admin listener serves nothing of the player and vice versa. Files of
// src/ and of the libraries are copied unchanged.
import { cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const web = dirname(fileURLToPath(import.meta.url));
const dist = join(web, 'dist');

const pages = {
  dashboard: [
    'src/icon.svg', 'src/theme.css', 'src/dashboard.css', 'src/dashboard.js', 'src/charts.js', 'src/feed.js',
    'src/format.js', 'src/history.js', 'src/tables.js', 'src/tiles.js', 'src/views.js',
    'src/groups.css', 'src/groups.js', 'src/group-views.js', 'src/steps.js',
    'node_modules/uplot/dist/uPlot.esm.js', 'node_modules/uplot/dist/uPlot.min.css',
  ],
  // Served by the same listener, from the dashboard's directory.
  groups: [],
  player: [
    'src/home.html', 'src/icon.svg', 'src/theme.css', 'src/player.css', 'src/player.js', 'src/engines.js', 'src/format.js',
    'src/freezes.js', 'src/playback.js', 'src/target.js',
    'node_modules/mpegts.js/dist/mpegts.js', 'node_modules/hls.js/dist/hls.min.js',
  ],
  'side-by-side': [
    'src/icon.svg', 'src/theme.css', 'src/side-by-side.css', 'src/side-by-side.js', 'src/wall.js', 'src/minute.js', 'src/playback.js',
    'src/engines.js', 'src/format.js', 'src/freezes.js', 'src/target.js', 'node_modules/mpegts.js/dist/mpegts.js',
  ],
};

rmSync(dist, { recursive: true, force: true });
mkdirSync(dist);
for (const [page, files] of Object.entries(pages)) {
  if (files.length) mkdirSync(join(dist, page), { recursive: true });
  cpSync(join(web, 'src', `${page}.html`), join(dist, `${page}.html`));
  for (const file of files) {
    const text = readFileSync(join(web, file), 'utf8');
    // Removes references to source maps, which are not served, so that developer tools do not request them.
    writeFileSync(join(dist, page, basename(file)), text.replace(/^\/\/# sourceMappingURL=.*\n?/m, ''));
  }
}

// The libraries' licences require a copy of their text.
const bundled = {
  'mpegts.js': ['mpegts.js/LICENSE', 'mpegts.js/dist/mpegts.js.LICENSE.txt'],
  'hls.js': ['hls.js/LICENSE'],
  uPlot: ['uplot/LICENSE'],
};
writeFileSync(
  join(dist, 'licenses.txt'),
  Object.entries(bundled)
    .map(([name, files]) => [`==== ${name} ====`, ...files.map((file) => readFileSync(join(web, 'node_modules', file), 'utf8').trim())].join('\n\n'))
    .join('\n\n') + '\n',
);
