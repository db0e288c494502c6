// The map: a column of cells per node, a cell per zone. Drawn on a canvas, because 5,000 nodes with
// 8 zones are 40,000 cells. Arrow keys move over the nodes, and the node's panel says it in words.

import { ask } from "./api.js";
import { choice, element, field, share, table } from "./elements.js";
import { go, here } from "./place.js";

// 5,000 nodes with 8 zones are in one view of 1280 by 800: cells of 2 by 3, a gap of 1.
const SMALL = 6;
const WIDEST = 72;
const NAMED_FROM = 56; // a cell as wide as this has room for its node's name
const NAME_HEIGHT = 15;
const MODES = [
  ["use", "use"],
  ["uncertainty", "uncertainty"],
  ["fits", "room for a shape"],
];

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

export class ZoneMap {
  constructor(onChoose) {
    this.nodes = [];
    this.places = [];
    this.mode = "use";
    this.chosen = "";
    this.canvas = element("canvas", {
      tabindex: "0",
      role: "application",
      "aria-label": "Map of nodes by zones. Arrow keys move, Enter shows a node.",
      onclick: (event) => this.#click(event, onChoose),
      onkeydown: (event) => this.#key(event, onChoose),
    });
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }

  show(nodes, mode, chosen) {
    this.mode = mode;
    this.chosen = chosen;
    this.groups = grouped(nodes);
    this.nodes = [...this.groups.values()].flat();
    this.draw();
  }

  draw() {
    const width = this.canvas.clientWidth;
    if (!width || !this.groups) return;
    const zones = Math.max(1, ...this.nodes.map((node) => node.zones.length));
    const wide = Math.max(2, Math.min(WIDEST, Math.floor(Math.sqrt((width * 460) / (this.nodes.length * zones + 1)))));
    const high = Math.max(3, Math.min(18, wide));
    const gap = wide < SMALL ? 1 : 2;
    const head = wide < NAMED_FROM ? 0 : NAME_HEIGHT;
    const columns = Math.max(1, Math.floor(width / (wide + gap)));
    this.columns = columns;
    const tall = head + zones * high + gap * 2;
    const named = [...this.groups.keys()].some((name) => name);
    let rows = 0;
    for (const group of this.groups.values()) rows += Math.ceil(group.length / columns);
    const height = rows * tall + (named ? this.groups.size * 20 : 0) + 4;
    const ratio = window.devicePixelRatio || 1;
    this.canvas.height = height * ratio;
    this.canvas.width = width * ratio;
    this.canvas.style.height = `${height}px`;
    const pen = this.canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.font = "12px system-ui, sans-serif";
    const colors = Object.fromEntries(
      ["used", "charged", "free", "bad", "text", "link"].map((name) => [name, color(`--${name}`)]),
    );
    this.places = [];
    let top = 2;
    for (const [name, group] of this.groups) {
      if (named) {
        pen.fillStyle = colors.text;
        pen.fillText(`${name} (${group.length})`, 2, top + 13);
        top += 20;
      }
      group.forEach((node, index) => {
        const left = (index % columns) * (wide + gap);
        const y = top + head + Math.floor(index / columns) * tall;
        if (head) {
          pen.fillStyle = colors.text;
          pen.fillText(node.name.slice(-Math.floor(wide / 7)), left, y - 4);
        }
        this.places.push([left, y, wide + gap, zones * high]);
        this.#node(pen, node, left, y, wide, high, colors);
      });
      top += Math.ceil(group.length / columns) * tall;
    }
  }

  #node(pen, node, left, top, wide, high, colors) {
    const cell = high > 5 ? high - 1 : high;
    node.zones.forEach(([, used, charged, free, fits], index) => {
      const y = top + index * high;
      const total = used + charged + free;
      pen.fillStyle = colors.free;
      pen.fillRect(left, y, wide, cell);
      if (this.mode === "fits") {
        if (fits > 0) {
          pen.fillStyle = colors.used;
          pen.globalAlpha = Math.min(1, 0.25 + fits / 8);
          pen.fillRect(left, y, wide, cell);
          pen.globalAlpha = 1;
        }
        return;
      }
      const scale = total ? wide / total : 0;
      if (this.mode === "use") {
        pen.fillStyle = colors.used;
        pen.fillRect(left, y, used * scale, cell);
      }
      pen.fillStyle = colors.charged;
      pen.fillRect(left + (this.mode === "use" ? used * scale : 0), y, charged * scale, cell);
    });
    if (node.flags) {
      pen.strokeStyle = colors.bad;
      pen.strokeRect(left + 0.5, top - 0.5, wide - 1, node.zones.length * high);
    }
    if (node.name === this.chosen) {
      pen.strokeStyle = colors.link;
      pen.lineWidth = 2;
      pen.strokeRect(left - 1, top - 1, wide + 2, Math.max(1, node.zones.length) * high + 2);
      pen.lineWidth = 1;
    }
  }

  #click(event, onChoose) {
    const index = this.places.findIndex(
      ([left, top, wide, tall]) =>
        event.offsetX >= left && event.offsetX < left + wide && event.offsetY >= top && event.offsetY < top + tall,
    );
    if (index >= 0) onChoose(this.nodes[index].name);
  }

  #key(event, onChoose) {
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.columns, ArrowUp: -this.columns };
    if (!(event.key in steps) || !this.nodes.length) return;
    event.preventDefault();
    const now = this.nodes.findIndex((node) => node.name === this.chosen);
    const next = Math.min(this.nodes.length - 1, Math.max(0, now + steps[event.key]));
    onChoose(this.nodes[next].name);
  }
}

function grouped(nodes) {
  const groups = new Map();
  for (const node of nodes) {
    const name = node.group || "";
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(node);
  }
  return groups;
}

// Keeps the nodes of the newest answer, and asks only for those that changed since.
export class Nodes {
  async load(place) {
    const question = { resource: place.resource || "cpu", shape: place.shape, label: place.label, at: place.at };
    const key = JSON.stringify(question);
    const since = this.key === key && !place.at ? this.position : 0;
    const answer = await ask("/map", { ...question, since });
    if (answer.is_whole) this.byName = new Map();
    for (const node of answer.nodes) this.byName.set(node.name, node);
    if (this.byName.size !== answer.names) {
      this.key = "";
      return since ? this.load(place) : this;
    }
    [this.key, this.position, this.time] = [key, answer.position, answer.time];
    return this;
  }

  list() {
    return [...this.byName.values()].sort((one, other) => (one.name < other.name ? -1 : 1));
  }
}

export function nodePanel(node) {
  const resources = [...new Set(node.zones.flatMap((zone) => Object.keys(zone.resources)))].sort();
  const rows = resources.map((resource) => [
    resource,
    ...node.zones.map((zone) => free(resource, zone.resources[resource])),
  ]);
  const marks = [
    node.dirty && `dirty: ${node.dirty}`,
    node.expired && "its report has expired",
    !node.ready && "not ready",
    ...node.excluded.map((cause) => `excluded for a pod class: ${cause}`),
    ...node.problems,
  ].filter(Boolean);
  const pods = node.charges.map((charge) => [
    element("a", { href: `#pods?pod=${encodeURIComponent(charge.pod)}` }, charge.pod),
    charge.text || charge.state,
  ]);
  return element(
    "section",
    { class: "panel", "aria-live": "polite" },
    element("h2", {}, node.node),
    element("p", { class: "subtle" }, `policy ${node.policy || "unknown"}, scope ${node.scope || "unknown"}`),
    ...marks.map((text) => element("p", { class: "bad" }, text)),
    table("Free of allocatable, by zone", ["", ...node.zones.map((zone) => `zone ${zone.zone}`)], rows),
    table(`Pods (${pods.length})`, ["pod", "zones"], pods),
    element("p", {}, element("a", { href: `#time?node=${encodeURIComponent(node.node)}` }, "History of this node")),
  );
}

function free(resource, amounts) {
  if (!amounts) return "";
  return share(resource, [amounts.free_min, amounts.free_max], amounts.allocatable);
}

export class MapView {
  constructor(root) {
    this.nodes = new Nodes();
    this.map = new ZoneMap((name) => go({ node: name }));
    this.controls = element("div", { class: "controls" });
    this.side = element("div", {});
    this.legend = element("div", {});
    this.summary = element("p", { class: "subtle" });
    root.append(
      this.controls,
      element("div", { class: "split" }, element("div", {}, this.legend, this.map.canvas, this.summary), this.side),
    );
  }

  async show(place, now) {
    this.#controls(place, now);
    await this.nodes.load(place);
    this.map.show(this.nodes.list(), place.mode || "use", place.node);
    this.legend.replaceChildren(legend(place.mode));
    const flagged = this.nodes.list().filter((node) => node.flags).length;
    const fits = this.nodes.list().reduce((sum, node) => sum + node.zones.reduce((all, zone) => all + Math.max(0, zone[4]), 0), 0);
    this.summary.textContent =
      `${this.nodes.list().length} nodes, ${flagged} with a mark` +
      (place.shape ? `; ${place.shape} surely fits ${fits} times, each in one zone` : "");
    if (!place.node) {
      this.side.replaceChildren(element("p", { class: "subtle" }, "Choose a node to see its zones and pods."));
      return;
    }
    const node = await ask("/node", { node: place.node, at: place.at });
    this.side.replaceChildren(nodePanel(node));
  }

  #controls(place, now) {
    const key = JSON.stringify([now.resources, now.labels, place.resource, place.mode, place.label, place.shape]);
    if (this.shown === key) return;
    this.shown = key;
    const shape = element("input", {
      placeholder: "cpu=4,memory=8Gi",
      value: place.shape || "",
      onchange: () => go({ shape: shape.value, mode: shape.value ? "fits" : "use" }),
    });
    this.controls.replaceChildren(
      field("Resource", choice(now.resources.map((name) => [name, name]), place.resource || "cpu", (resource) => go({ resource }))),
      field("Colour", choice(MODES, place.mode || "use", (mode) => go({ mode }))),
      field("Group by label", choice([["", "no grouping"], ...now.labels.map((name) => [name, name])], place.label || "", (label) => go({ label }))),
      field("Shape", shape),
    );
  }
}

const MEANINGS = {
  use: [["used", "used"], ["charged", "charged, zone not confirmed"], ["free", "free"]],
  uncertainty: [["charged", "charged, zone not confirmed"], ["free", "the rest"]],
  fits: [["used", "the shape surely fits; the stronger, the more often"], ["free", "it may not fit"]],
};

export function legend(mode = "use") {
  return element(
    "ul",
    { class: "legend" },
    ...MEANINGS[mode].map(([name, text]) => element("li", {}, element("i", { class: name }), text)),
    element("li", {}, "red frame: something keeps pods away"),
  );
}
