// Charts over time, by uPlot. A gap is a time in which nothing was published.

import { el, formula, seconds, whole } from "./elements.js";
import { percent, size } from "./parts.js";

const HEIGHT = 180;

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// light-dark() is resolved by using it.
function resolved(name) {
  const probe = el("span", {});
  probe.style.color = color(name);
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

// "of" reads slots of the history; "at" reads what is kept by the begin of a slot.
export function slotsOf(history, slotSeconds, slots) {
  const began = beginsOf(slotSeconds, slots);
  const found = new Map(history.map((slot) => [slot.began_s, slot]));
  return {
    began,
    of: (read) => began.map((at) => (found.has(at) ? read(found.get(at)) : null)),
    at: (bySlot, read = (value) => value) => began.map((at) => (at in bySlot ? read(bySlot[at]) : null)),
  };
}

export function gaugesOf(gauges, everySeconds, count) {
  const at = gauges.map((one) => ({ ...one, began_s: Math.floor(Date.parse(one.at) / 1000) }));
  return slotsOf(at, everySeconds, count);
}

function beginsOf(slotSeconds, slots) {
  const newest = Math.floor(Date.now() / 1000 / slotSeconds) * slotSeconds;
  return Array.from({ length: slots }, (_, at) => newest - (slots - 1 - at) * slotSeconds);
}

export function chart(key, caption, began, lines, show) {
  const figure = el("figure", {}, el("figcaption", {}, formula(key, caption)));
  const axis = { stroke: resolved("--ink-2"), grid: { stroke: resolved("--rule"), width: 1 }, ticks: { stroke: resolved("--rule") } };
  const colors = [resolved("--blue"), resolved("--warning"), resolved("--critical"), resolved("--good")];
  const drawn = (width) =>
    new uPlot(
      {
        width, height: HEIGHT, cursor: { y: false },
        axes: [axis, { ...axis, size: 64, values: (_, marks) => marks.map(show) }],
        scales: { y: { range: (_, low, high) => [0, Math.max(high, leastOf(show)) * 1.1] } },
        series: [
          {},
          ...lines.map(([label], at) => ({
            label, stroke: colors[at], width: 2, points: { show: isSparse(lines[at][1]) },
            value: (_, value) => (value === null || value === undefined ? "–" : show(value)),
          })),
        ],
      },
      [began, ...lines.map(([, values]) => values)],
      figure,
    );
  // It has a width once it is in the page, and another when the window has.
  let plot = null;
  new ResizeObserver(() => {
    const width = figure.clientWidth - 20;
    if (width <= 0 || width === plot?.width) return;
    if (plot) plot.setSize({ width, height: HEIGHT });
    else plot = drawn(width);
  }).observe(figure);
  return figure;
}

// Of which an axis is at least, or nothing but zeros has marks that all say 0.
const leastOf = (show) => (show === byCount ? 1 : show === byBytes ? 1000 : show === bySeconds ? 0.01 : 0.001);

// Few numbers, or single ones, are no line.
const isSparse = (values) => values.filter((one) => one !== null).length < 40;

export const byCount = (value) => whole(value);
export const bySeconds = (value) => seconds(value);
export const byShare = (value) => percent(value);
export const byBytes = (value) => size(value);
