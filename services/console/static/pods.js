// Pods: why they wait, which zones they were to get and got, and the story of one.

import { ask } from "./api.js";
import { choice, element, field, table } from "./elements.js";
import { go } from "./place.js";

const STAGES = ["pending", "reserved", "intended", "bound", "running"];

export class PodsView {
  constructor(root) {
    this.controls = element("div", { class: "controls" });
    this.list = element("div", {});
    this.side = element("div", {});
    this.search = element("input", {
      type: "search",
      placeholder: "part of namespace/name",
      oninput: () => go({ search: this.search.value }, { replace: true }),
    });
    root.append(this.controls, element("div", { class: "split chosen-first" }, this.list, this.side));
  }

  async show(place) {
    if (document.activeElement !== this.search) this.search.value = place.search || "";
    this.controls.replaceChildren(
      field("Stage", choice([["", "all"], ...STAGES.map((name) => [name, name])], place.stage || "", (stage) => go({ stage }))),
      field("Search", this.search),
    );
    const answer = await ask("/pods", { at: place.at, stage: place.stage, search: place.search });
    const rows = answer.pods.map((pod) => [
      element("a", { href: `#pods?${new URLSearchParams({ ...keep(place), pod: pod.uid })}` }, pod.pod),
      pod.stage,
      pod.node ? element("a", { href: `#map?node=${encodeURIComponent(pod.node)}` }, pod.node) : "",
      pod.reason || `${pod.placement}${pod.certain ? " (certain)" : ""}`,
    ]);
    const caption = `${rows.length} of ${answer.total} live pods`;
    this.list.replaceChildren(table(caption, ["pod", "stage", "node", "why it waits, or its zones"], rows, [], true));
    if (!place.pod) {
      this.side.replaceChildren(element("p", { class: "subtle" }, "Choose a pod to read its story."));
    } else if (this.shown !== `${place.pod} ${place.whyNot}` || !place.at) {
      this.shown = `${place.pod} ${place.whyNot}`;
      if (!this.side.querySelector(".panel")) this.side.textContent = "Reading its events ...";
      await this.#story(place);
    }
  }

  async #story(place) {
    const stories = await ask("/story", { pod: place.pod });
    const why = place.whyNot ? [await this.#whyNot(place)] : [];
    this.side.replaceChildren(...stories.map((story) => this.#panel(story, place)), ...why);
  }

  #panel(story, place) {
    const node = element("input", {
      placeholder: "node",
      value: place.whyNot || "",
      onchange: () => go({ whyNot: node.value }),
    });
    const lines = story.lines.map((line) =>
      element(
        "li",
        {},
        element("a", { href: `#map?at=${line.position}`, title: line.time }, line.time.slice(11, 19)),
        " ",
        line.title,
        line.detail.length ? element("ul", {}, ...line.detail.map((text) => element("li", {}, text))) : null,
      ),
    );
    return element(
      "section",
      { class: "panel" },
      element("h2", {}, story.key),
      element("p", {}, story.current),
      story.quarantined ? element("p", { class: "bad" }, story.quarantined) : null,
      element("ol", { class: "story" }, ...lines),
      field("Why not on node", node),
    );
  }

  async #whyNot(place) {
    const answer = await ask("/why-not", { pod: place.pod, node: place.whyNot, at: place.at });
    return element(
      "section",
      { class: "panel", "aria-live": "polite" },
      element("h2", {}, `Why not ${answer.node}?`),
      element("p", {}, answer.answer),
      element("ul", {}, ...answer.lines.map((text) => element("li", {}, text))),
    );
  }
}

function keep(place) {
  const { stage = "", search = "", at = "" } = place;
  return Object.fromEntries(Object.entries({ stage, search, at }).filter(([, value]) => value));
}
