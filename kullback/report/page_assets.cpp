#include "kullback/report/page_assets.h"

namespace kullback::detail {

std::string_view page_style() {
  return R"css(
:root { --ground: #fff; --page: #f5f6f8; --ink: #1c2329; --dim: #5a6570; --rule: #dde2e7; --grid: #e3e7eb; --axis: #8a949e;
  --good: #00794f; --bad: #b93a10; --accent: #0068b4; --soft: #eef2f6; --warn: #fff4d6; --warn-ink: #6b4a00; --shade: 209 72 11; }
@media (prefers-color-scheme: dark) { :root { --ground: #1a1f25; --page: #11151a; --ink: #e6eaee; --dim: #a3adb7; --rule: #313942;
  --grid: #2b323a; --axis: #717c87; --good: #45cf9c; --bad: #ff9468; --accent: #4ea8e8; --soft: #232a32; --warn: #3a2f12; --warn-ink: #f5d98b;
  --shade: 255 141 85; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--page); color: var(--ink); line-height: 1.5;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
.wrap { max-width: 1160px; margin: 0 auto; padding: 0 20px; }
header { background: var(--ground); border-bottom: 1px solid var(--rule); padding: 28px 0 24px; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0 0 6px; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 36px 0 12px; }
p { margin: 0 0 12px; max-width: 76ch; overflow-wrap: anywhere; }
.muted { color: var(--dim); } p.muted { font-size: .92rem; margin-bottom: 6px; max-width: 90ch; } .strong { font-weight: 600; } .good { color: var(--good); } .bad { color: var(--bad); }
.summary { margin: 0 0 2px; color: var(--dim); }
.warning { background: var(--warn); color: var(--warn-ink); border-radius: 8px; padding: 10px 14px; max-width: none; }
.numbers { display: grid; grid-template-columns: repeat(auto-fill, minmax(215px, 1fr)); gap: 12px; margin: 20px 0 0; }
.number { border: 1px solid var(--rule); border-radius: 10px; padding: 12px 16px; background: var(--page); }
.number .label { color: var(--dim); font-size: .9rem; }
.number .big { font-size: 1.7rem; font-weight: 650; line-height: 1.25; font-variant-numeric: tabular-nums; }
.number .from { font-weight: 400; color: var(--dim); font-size: 1.15rem; }
.number .unit { font-weight: 400; color: var(--dim); font-size: .95rem; }
.number .interval { color: var(--dim); font-size: .85rem; font-variant-numeric: tabular-nums; }
nav { display: flex; flex-wrap: wrap; gap: 6px 18px; align-items: center; margin-top: 18px; }
a { color: var(--accent); text-decoration: none; } a:hover { text-decoration: underline; }
button { font: inherit; color: inherit; }
.action { background: none; border: 1px solid var(--rule); border-radius: 8px; padding: 4px 12px; color: var(--accent); cursor: pointer; }
.action:hover { background: var(--soft); }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 460px), 1fr)); gap: 16px; margin: 0 0 16px; }
.plots.alone { grid-template-columns: minmax(0, 1fr); }
figure { margin: 0; background: var(--ground); border: 1px solid var(--rule); border-radius: 10px; overflow: hidden; position: relative; }
svg.plot { display: block; width: 100%; height: auto; touch-action: pan-y; }
svg.medium, svg.narrow { display: none; }
svg.plot .ground { fill: var(--ground); } svg.plot .ink { fill: var(--ink); } svg.plot .dim { fill: var(--dim); }
svg.plot .halo { stroke: var(--ground); } svg.plot .grid { stroke: var(--grid); } svg.plot .axis { stroke: var(--axis); }
svg.plot .reference { stroke: var(--dim); } svg.plot .whisker { stroke: var(--ink); } svg.plot .cursor { stroke: var(--dim); stroke-width: 1; }
svg.plot .knob { stroke: var(--ground); stroke-width: 1.5; }
#tip { position: fixed; z-index: 10; pointer-events: none; background: var(--ground); border: 1px solid var(--axis); border-radius: 8px; padding: 6px 10px;
  font-size: .85rem; line-height: 1.4; max-width: 320px; box-shadow: 0 4px 16px rgb(0 0 0 / .18); font-variant-numeric: tabular-nums; }
#tip .row { display: flex; gap: 8px; align-items: baseline; } #tip .row b { margin-left: auto; padding-left: 10px; }
#tip i { width: 10px; height: 10px; border-radius: 3px; flex: none; }
.table-wrap { overflow-x: auto; width: fit-content; min-width: min(100%, 440px); max-width: 100%; background: var(--ground); border: 1px solid var(--rule); border-radius: 10px; margin: 0 0 16px; }
.table-wrap > p { padding: 8px 14px; margin: 0; }
table { border-collapse: collapse; width: 100%; font-size: .95rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: 10px 14px 4px; }
th, td { padding: 7px 14px; border-top: 1px solid var(--rule); text-align: left; vertical-align: top; overflow-wrap: break-word; }
thead th { border-top: 0; color: var(--dim); font-weight: 600; white-space: nowrap; }
tbody tr:hover { background: var(--soft); }
th.right, td.right { text-align: right; white-space: nowrap; } .bounds { color: var(--dim); white-space: nowrap; } th.centre, td.centre { text-align: center; }
th button { background: none; border: 0; padding: 0; font-weight: inherit; cursor: pointer; }
th button::after { content: "\2195"; opacity: .35; padding-left: 5px; font-weight: 400; }
th[aria-sort=ascending] button::after { content: "\2191"; opacity: 1; } th[aria-sort=descending] button::after { content: "\2193"; opacity: 1; }
.sample { background: var(--ground); border: 1px solid var(--rule); border-radius: 10px; margin: 0 0 16px; overflow: hidden; }
.sample .prompt { background: var(--soft); padding: 10px 16px; border-bottom: 1px solid var(--rule); }
.sample .answers { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 270px), 1fr)); gap: 1px; background: var(--rule); }
.sample .answer { background: var(--ground); padding: 10px 16px; min-width: 0; }
.sample h3 { margin: 0 0 4px; font-size: .8rem; color: var(--dim); font-weight: 600; }
.text { white-space: pre-wrap; overflow-wrap: anywhere; overflow-y: auto; max-height: 320px; }
.prompt .text { max-height: 200px; }
.shaded { background: var(--ground); border: 1px solid var(--rule); border-radius: 10px; padding: 12px 16px; margin: 0 0 16px; }
.shaded h3, .code h3 { margin: 0 0 6px; font-size: .95rem; }
.shaded .text { max-height: 420px; line-height: 1.75; }
.shaded .text span { background: rgb(var(--shade) / var(--v)); border-radius: 3px; padding: 2px 0; }
.scale { display: inline-block; width: 90px; height: 10px; border-radius: 3px; background: linear-gradient(90deg, rgb(var(--shade) / 0), rgb(var(--shade) / .75)); }
details, .code { background: var(--ground); border: 1px solid var(--rule); border-radius: 10px; margin: 0 0 16px; padding: 10px 16px; }
summary { cursor: pointer; font-weight: 600; }
pre { margin: 8px 0 2px; overflow: auto; max-height: 520px; font: .85rem/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
footer { color: var(--dim); font-size: .85rem; padding: 24px 0 40px; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
@media (max-width: 860px) { .alone svg.wide { display: none; } svg.medium { display: block; } }
@media (max-width: 560px) { svg.wide, svg.medium { display: none !important; } svg.narrow { display: block; } .wrap { padding: 0 14px; } thead th, th.right { white-space: normal; } h1 { font-size: 1.4rem; }
  .numbers { grid-template-columns: 1fr 1fr; gap: 8px; } .number { padding: 10px 12px; } .number .big { font-size: 1.3rem; } .number .from { font-size: 1rem; }
  table { font-size: .84rem; } th, td { padding: 6px 7px; } td.right { white-space: normal; } }
@media print { body { background: #fff; } .action, nav { display: none; } .text, pre { max-height: none; } figure, .sample, tr { break-inside: avoid; } }
)css";
}

std::string_view page_script() {
  return R"js(
'use strict';
(() => {
  const data = JSON.parse(document.getElementById('data').textContent);
  const svgSpace = 'http://www.w3.org/2000/svg';
  const make = (tag, text, look) => {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    if (look) element.className = look;
    return element;
  };

  // Values on hover.
  const tip = make('div');
  tip.id = 'tip';
  tip.hidden = true;
  document.body.append(tip);
  const number = value => {
    if (value === null || value === undefined) return 'n/a';
    if (value !== 0 && (Math.abs(value) < 1e-4 || Math.abs(value) >= 1e9)) return value.toExponential(3);
    return String(Number(value.toPrecision(5)));
  };
  const named = (axis, value) => axis.categories && axis.categories[Math.round(value)] !== undefined ? axis.categories[Math.round(value)] : number(value);
  const withUnit = (text, axis) => axis.unit ? text + ' ' + axis.unit : text;

  const scaleOf = (text, from, to) => {
    const [low, high, kind] = text.split(' ');
    const map = kind === 'log' ? Math.log : Number;
    const a = map(+low), b = map(+high);
    return value => value === null || (kind === 'log' && value <= 0) ? NaN : from + (map(value) - a) / (b - a) * (to - from);
  };

  const attach = (svg, plot) => {
    svg.querySelectorAll('title').forEach(title => title.remove());  // else the browser's own tip comes on top
    const [left, top, right, bottom] = svg.dataset.frame.split(' ').map(Number);
    const atX = scaleOf(svg.dataset.x, left, right);
    const atY = plot.y.categories ? scaleOf(svg.dataset.y, top, bottom) : scaleOf(svg.dataset.y, bottom, top);
    const series = plot.series.map((s, place) => ({ ...s, place, px: s.x.map(atX), py: s.y.map(atY) }));
    const cloud = series.some(s => s.mark === 'points');  // then only points are shown, not the lines that guide the eye
    const pointed = cloud ? series.filter(s => s.mark === 'points') : series;
    const overlay = document.createElementNS(svgSpace, 'g');
    overlay.setAttribute('pointer-events', 'none');
    svg.append(overlay);

    const nearest = (s, x, y) => {
      let best = -1, distance = Infinity;
      for (let i = 0; i < s.px.length; ++i) {
        if (!isFinite(s.px[i]) || !isFinite(s.py[i])) continue;
        const d = s.mark === 'points' ? Math.hypot(s.px[i] - x, s.py[i] - y) : Math.abs(s.mark === 'horizontal-bars' ? s.py[i] - y : s.px[i] - x);
        if (d < distance) { distance = d; best = i; }
      }
      return { s, i: best, distance };
    };
    const hide = () => { overlay.replaceChildren(); tip.hidden = true; };
    const show = event => {
      const box = svg.getBoundingClientRect(), zoom = svg.viewBox.baseVal.width / box.width;
      const x = (event.clientX - box.left) * zoom, y = (event.clientY - box.top) * zoom;
      if (x < left - 12 || x > right + 12 || y < top - 12 || y > bottom + 12) return hide();
      let hits = pointed.map(s => nearest(s, x, y)).filter(hit => hit.i >= 0);
      if (!hits.length) return hide();
      const least = Math.min(...hits.map(hit => hit.distance));
      if (cloud && least > 40) return hide();
      hits = cloud ? [hits.find(hit => hit.distance === least)] : hits.filter(hit => hit.distance <= least + 6);

      overlay.replaceChildren();
      const lead = hits.reduce((a, b) => (b.distance < a.distance ? b : a));
      const sideways = lead.s.mark === 'horizontal-bars';
      if (!cloud && !sideways) {
        const cursor = document.createElementNS(svgSpace, 'path');
        cursor.setAttribute('d', `M${lead.s.px[lead.i]} ${top}V${bottom}`);
        cursor.setAttribute('class', 'cursor');
        overlay.append(cursor);
      }
      tip.replaceChildren();
      const along = sideways ? plot.y : plot.x, value = sideways ? plot.x : plot.y;
      const place = sideways ? lead.s.y[lead.i] : lead.s.x[lead.i];
      const name = lead.s.labels && lead.s.labels[lead.i];
      if (name && !along.categories) tip.append(make('div', name, 'strong'));
      let where = named(along, place);
      if (lead.s.x_low) where += ` [${number(lead.s.x_low[lead.i])}, ${number(lead.s.x_high[lead.i])}]`;
      if (!along.categories) where = (along.title ? along.title + ' ' : '') + withUnit(where, along);
      tip.append(make('div', where, 'muted'));
      for (const { s, i } of hits) {
        const row = make('div', undefined, 'row'), swatch = make('i');
        swatch.style.background = `var(--c${s.colour})`;
        let text = number(sideways ? s.x[i] : s.y[i]);
        if (s.low && s.low[i] !== null) text += ` [${number(s.low[i])}, ${number(s.high[i])}]`;
        row.append(swatch, make('span', s.name || value.title), make('b', withUnit(text, value)));
        tip.append(row);
        if (s.mark === 'bars' || sideways) continue;
        const knob = document.createElementNS(svgSpace, 'circle');
        for (const [key, v] of [['cx', s.px[i]], ['cy', s.py[i]], ['r', 5], ['class', `knob f${s.colour}`]]) knob.setAttribute(key, v);
        overlay.append(knob);
      }
      tip.hidden = false;
      const size = tip.getBoundingClientRect();
      const beside = event.clientX + 16 + size.width < innerWidth ? event.clientX + 16 : event.clientX - 16 - size.width;
      tip.style.left = Math.max(4, beside) + 'px';
      tip.style.top = Math.max(4, Math.min(event.clientY + 12, innerHeight - size.height - 4)) + 'px';
    };
    svg.addEventListener('pointermove', show);
    svg.addEventListener('pointerdown', show);
    svg.addEventListener('pointerleave', hide);
  };
  for (const figure of document.querySelectorAll('figure[data-plot]')) {
    for (const svg of figure.querySelectorAll('svg.plot')) attach(svg, data.plots[figure.dataset.plot]);
  }
  addEventListener('scroll', () => { tip.hidden = true; }, { passive: true });

  // Tables sorted by a click: numbers by value, the rest as words, empty cells last.
  for (const table of document.querySelectorAll('table.sortable')) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => head.firstElementChild.addEventListener('click', () => {
      const up = head.getAttribute('aria-sort') !== 'ascending';
      heads.forEach(other => other.setAttribute('aria-sort', other === head ? (up ? 'ascending' : 'descending') : 'none'));
      const key = row => {
        const cell = row.cells[column];
        return cell.dataset.value !== undefined ? Number(cell.dataset.value) : cell.textContent;
      };
      const rank = value => (value === '' || value === 'n/a' ? 2 : typeof value === 'number' ? 0 : 1);
      const order = (a, b) => rank(a) - rank(b) ||
        (up ? 1 : -1) * (typeof a === 'number' ? a - b : a.localeCompare(b, undefined, { numeric: true }));
      const rows = [...table.tBodies[0].rows].map(row => [key(row), row]);
      rows.sort((a, b) => order(a[0], b[0]));
      table.tBodies[0].append(...rows.map(row => row[1]));
    }));
  }

  // The data as a file.
  const button = document.getElementById('download');
  button.hidden = false;
  button.addEventListener('click', () => {
    const link = make('a');
    link.href = URL.createObjectURL(new Blob([JSON.stringify(data, null, 1)], { type: 'application/json' }));
    link.download = button.dataset.name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  });
})();
)js";
}

}  // namespace kullback::detail
