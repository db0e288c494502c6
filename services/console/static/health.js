// Health: what needs a look, and how it moved lately.

import { ask } from "./api.js";
import { element, table } from "./elements.js";

const COUNTS = [
  ["waiting", "pods wait", "#pods?stage=pending"],
  ["waiting_for_zone", "of them wait for a zone, not for a node", "#pods?stage=pending"],
  ["unconfirmed", "charges that no report has confirmed", "#map?mode=uncertainty"],
  ["dirty", "nodes are dirty: to be compared with their next report", "#map"],
  ["expired", "nodes have an expired report", "#map"],
  ["excluded", "nodes are excluded for some pods", "#map"],
];

export class HealthView {
  constructor(root) {
    this.counts = element("div", { class: "counts" });
    this.room = element("div");
    this.plots = element("div", { class: "plots" });
    this.pictures = new Map();
    root.append(element("div", { class: "pair" }, this.counts, this.room), this.plots);
  }

  async show(_place, now) {
    const { sample } = now;
    const rows = COUNTS.map(([name, text, href]) => [`${sample.counts[name]}`, element("a", { href }, text)]);
    rows.push([`${sample.rejected}`, "pods were rejected by a kubelet since the console began"]);
    rows.push([`${sample.hit} of ${sample.predicted}`, "predictions of zones came true since the console began"]);
    rows.push([`${sample.lag}`, "events behind the head of the log"]);
    this.counts.replaceChildren(table(`${sample.counts.nodes} nodes, ${sample.counts.pods} live pods`, ["", ""], rows, [0]));
    await this.#showRoom();
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    await Promise.all(now.plots.map((name) => this.#plot(name, dark)));
  }

  async #showRoom() {
    const rooms = await ask("/room");
    const rows = rooms.map((room) => [room.request, `${room.pods}`, `${room.waiting}`, `${room.fits}`, `${room.at_best}`]);
    const columns = ["request", "pods", "waiting", "still fit", "at best"];
    this.room.replaceChildren(table("Room for the most frequent pods", columns, rows, [1, 2, 3, 4]));
  }

  async #plot(name, dark) {
    const url = URL.createObjectURL(await ask("/plot", { name, dark }));
    if (!this.pictures.has(name)) {
      const picture = element("img", { alt: `Plot: ${name}`, width: "420", height: "240" });
      this.pictures.set(name, picture);
      this.plots.append(picture);
    }
    const picture = this.pictures.get(name);
    URL.revokeObjectURL(picture.src);
    picture.src = url;
  }
}
