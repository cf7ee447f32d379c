// Puts together web/dist, the files that the server embeds: each page at the top, and what it loads
// in a folder of its own, so that the admin listener carries nothing of the player and the other way
// round. Plain copies: what the browser runs is what lies in src/ and in the libraries' packages.
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
  // Served by the same listener, from the dashboard's folder.
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
    // Source maps are not served: without the line, developer tools do not ask for them.
    writeFileSync(join(dist, page, basename(file)), text.replace(/^\/\/# sourceMappingURL=.*\n?/m, ''));
  }
}

// The libraries' licences ask that their text goes along with them.
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
