// The page: chooses the view of the address, keeps the moment, asks again every few seconds.

import { ask, cell, keepToken } from "./api.js";
import { HealthView } from "./health.js";
import { MapView } from "./map.js";
import { go, here, onMove } from "./place.js";
import { PodsView } from "./pods.js";
import { TimeView } from "./time.js";
import { WhatIfView } from "./what_if.js";

const VIEWS = { map: MapView, pods: PodsView, time: TimeView, "what-if": WhatIfView, health: HealthView };
const EVERY_MS = 2000;
const PLAY_MS = 700;
const CARRIED = ["at", "node", "pod"];

const part = (id) => document.getElementById(id);
const views = new Map();
let now = null;
let running = null;
let again = false;

function view(name) {
  if (!views.has(name)) {
    const root = document.createElement("div");
    views.set(name, { root, made: new VIEWS[name](root) });
  }
  return views.get(name);
}

// One refresh at a time; a move during a refresh is shown after it.
async function refresh() {
  if (running) {
    again = true;
    return;
  }
  running = draw().catch(tell).finally(() => {
    running = null;
    if (again) {
      again = false;
      refresh();
    }
  });
  await running;
}

async function draw() {
  const place = here();
  const name = place.view in VIEWS ? place.view : "map";
  for (const link of document.querySelectorAll("nav a")) {
    const isHere = link.dataset.view === name;
    if (isHere) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
    const carried = new URLSearchParams(CARRIED.filter((key) => place[key]).map((key) => [key, place[key]]));
    link.href = `#${link.dataset.view}${`${carried}` ? `?${carried}` : ""}`;
  }
  now = await ask("/now");
  moment(place);
  const chosen = view(name);
  if (part("content").firstChild !== chosen.root) part("content").replaceChildren(chosen.root);
  await chosen.made.show(place, now);
  part("problem").hidden = true;
  document.title = `Topolog: ${name}`;
  document.body.dataset.ready = name;
}

function tell(error) {
  part("problem").textContent = error.message;
  part("problem").hidden = false;
}

function moment(place) {
  const { sample } = now;
  part("status").textContent =
    `${sample.counts.nodes} nodes, ${sample.counts.pods} pods, ${sample.counts.waiting} waiting`;
  part("slider").max = now.head;
  const position = Number(place.at) || now.position;
  if (document.activeElement !== part("slider")) part("slider").value = position;
  part("position").textContent = place.at ? `${place.at} of ${now.head}` : `live: ${now.position} of ${now.head}`;
  part("live").disabled = !place.at;
}

function step(by) {
  const position = Number(here().at) || now.position;
  go({ at: `${Math.min(now.head, Math.max(1, position + by))}` });
}

function play() {
  const button = part("play");
  const isOn = button.getAttribute("aria-pressed") === "true";
  button.setAttribute("aria-pressed", `${!isOn}`);
  button.textContent = isOn ? "Play" : "Pause";
}

setInterval(() => {
  if (part("play").getAttribute("aria-pressed") === "true" && !running) step(1);
}, PLAY_MS);
setInterval(() => {
  if (!here().at && !document.hidden) refresh();
}, EVERY_MS);

part("slider").addEventListener("change", () => go({ at: part("slider").value }));
part("slider").addEventListener("input", () => {
  part("position").textContent = `${part("slider").value} of ${part("slider").max}`;
});
part("back").addEventListener("click", () => step(-1));
part("step").addEventListener("click", () => step(1));
part("play").addEventListener("click", play);
part("live").addEventListener("click", () => go({ at: "" }));
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || /INPUT|SELECT/.test(event.target.tagName)) return;
  const order = Object.keys(VIEWS);
  const actions = { ",": () => step(-1), ".": () => step(1), p: play, l: () => go({ at: "" }) };
  if (event.key in actions) actions[event.key]();
  else if (/^[1-5]$/.test(event.key)) go({ view: order[Number(event.key) - 1] });
});

// A link to each cell, if there are several.
async function linkCells() {
  const names = await ask("/cells");
  part("cells").replaceChildren(...names.map((name, at) => {
    const link = document.createElement("a");
    link.href = `?cell=${encodeURIComponent(name)}`;
    link.textContent = `Cell ${name}`;
    if (name === cell || (!cell && at === 0)) link.setAttribute("aria-current", "page");
    return link;
  }));
}

keepToken();
linkCells().catch(tell);
onMove(refresh);
refresh();
