// The job graph as SVG, laid out by dagre and fitted to the view.

import dagre from "./vendor/dagre.js";
import { el, whole } from "./elements.js";
import { percent, precise } from "./parts.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 132;
const HEIGHT = 34;
const TALL = 52;

function svg(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function laidOut({ steps, edges }) {
  const graph = new dagre.graphlib.Graph();
  graph.setGraph({ rankdir: "LR", nodesep: 22, ranksep: 62, marginx: 14, marginy: 14 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const step of steps)
    graph.setNode(step.name, {
      width: Math.max(WIDTH, step.title.length * 7.6 + 18, step.figures ? 168 : 0), height: step.figures ? TALL : HEIGHT,
    });
  for (const edge of edges) graph.setEdge(edge.source, edge.target);
  dagre.layout(graph);
  return graph;
}

function figuresOf({ rows_per_s, p95_s, share }) {
  return [[`${whole(rows_per_s)} rows/s`, "figure", 2], [`95 % ${precise(p95_s)} · ${percent(share)}`, "figure", 16]];
}

export function jobGraph(found) {
  const graph = laidOut(found);
  const { width, height } = graph.graph();
  const arrow = svg("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" },
    svg("path", { d: "M0 0 8 4 0 8z" }));
  const lines = found.edges.map((edge) => {
    const { points } = graph.edge(edge.source, edge.target);
    const middle = points[Math.floor(points.length / 2)];
    const told = edge.records === null ? "" : whole(edge.records);
    return svg("g", {},
      svg("path", { d: `M${points.map(({ x, y }) => `${x} ${y}`).join("L")}`, "marker-end": "url(#arrow)" }),
      svg("text", { class: "count", x: middle.x, y: middle.y - 6 }, told));
  });
  const boxes = found.steps.map((step) => {
    const { x, y, width: wide, height: high } = graph.node(step.name);
    const lines = step.figures ? [[step.title, "", -13], ...figuresOf(step.figures)] : [[step.title, "", 0]];
    return svg("g", { class: step.kind },
      svg("rect", { x: x - wide / 2, y: y - high / 2, width: wide, height: high }),
      ...lines.map(([text, kind, below]) => svg("text", { x, y: y + 4.5 + below, class: kind }, text)));
  });
  const told = found.edges.filter((edge) => edge.records !== null)
    .map((edge) => `${whole(edge.records)} from ${edge.source} to ${edge.target}`).join(", ");
  return el("div", { id: "graph", tabindex: "0" },
    svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Job graph: ${told}` },
      svg("defs", {}, arrow), ...lines, ...boxes));
}
