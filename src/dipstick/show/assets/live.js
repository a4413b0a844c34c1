// Hears from the server that there is a newer page, fetches it, and takes over what has changed; nothing is reloaded.
"use strict";

class Live {
  constructor(page) {
    this.page = page;
    this.box = document.getElementById("live");
    this.said = this.box.querySelector("span");
    this.wanted = this.version = Number(document.documentElement.dataset.version);
    this.fine = page && new Fine(page);
    this.events = new EventSource("/events");
    this.events.addEventListener("news", (e) => this.hear(JSON.parse(e.data)));
    this.events.addEventListener("stop", () => this.lose("dipstick live was stopped; this is what it showed last"));
    this.events.addEventListener("error", () => this.lose(this.events.readyState === EventSource.CLOSED
      ? "dipstick live no longer knows this page: open the address that it prints"
      : "no connection to dipstick live; trying again", false));
  }

  say(now, text) {
    this.box.dataset.now = now;
    if (this.said.textContent !== text) this.said.textContent = text;
  }

  lose(text, close = true) {
    if (close) this.events.close();
    this.isLost = close;
    this.say("lost", text);
  }

  hear({ version, now, said }) {
    this.wanted = version;
    this.say(now, said);
    this.update();
  }

  // One at a time: what comes meanwhile is fetched after it, and only the latest.
  async update() {
    if (this.isUpdating) return;
    this.isUpdating = true;
    try {
      while (this.version < this.wanted && !this.isLost) await this.take(await fetch("/"));
    } catch (error) {
      if (!this.isLost) this.lose(`the newest page could not be taken over (${error.message}); reload to see it`, false);
    }
    this.isUpdating = false;
  }

  async take(answer) {
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html"), data = fresh.getElementById("data");
    if (!this.page || !data || !fresh.getElementById("timeline")) { // before the first samples: there is no view to keep
      this.events.close();
      return location.reload();
    }
    const later = Number(data.dataset.start) - Number(document.getElementById("data").dataset.start);
    const opened = await unpack(data.textContent);
    await this.page.tracks.idle();
    const end = this.page.tracks.whole[1];
    document.title = fresh.title;
    for (const part of [".what", ".answer"]) document.querySelector(part).textContent = fresh.querySelector(part).textContent;
    merge(document.querySelector("main"), fresh.querySelector("main"), (node) => node.id || node.querySelector("h2").textContent, this.page);
    legends(fresh);
    this.page.take(opened, later);
    document.getElementById("data").dataset.start = data.dataset.start;
    this.version = Number(fresh.documentElement.dataset.version);
    document.documentElement.dataset.version = String(this.version);
    this.fine.renew(later, end);
  }
}

// Children of `fresh` take the place of those of `mine` that have the same name, where they differ; the tracks stay.
function merge(mine, fresh, name, page) {
  let at = mine.firstElementChild;
  for (const node of [...fresh.children]) {
    let same = at;
    while (same && name(same) !== name(node)) same = same.nextElementSibling;
    if (!same) {
      mine.insertBefore(node, at);
      page.verdicts(node.querySelectorAll(".card"));
      continue;
    }
    while (at !== same) { // what lies between is no longer said
      const gone = at;
      at = at.nextElementSibling;
      gone.remove();
    }
    at = at.nextElementSibling;
    if (node.id !== "timeline") renew(same, node, page);
  }
  while (at) {
    const gone = at;
    at = at.nextElementSibling;
    gone.remove();
  }
}

function renew(mine, fresh, page) {
  if (plain(mine) === plain(fresh)) return;
  if (mine.classList.contains("verdicts")) {
    return merge(mine.querySelector(".cards, .rows"), fresh.querySelector(".cards, .rows"), (card) => card.querySelector("h3").textContent, page);
  }
  const open = [...mine.querySelectorAll("details")].map((d) => d.open), focus = [...mine.querySelectorAll("button, summary")].indexOf(document.activeElement);
  fresh.querySelectorAll("details").forEach((d, i) => { d.open = Boolean(open[i]); });
  mine.replaceWith(fresh);
  if (fresh.matches(".card")) page.verdicts([fresh]);
  if (focus >= 0) [...fresh.querySelectorAll("button, summary")][focus]?.focus({ preventScroll: true });
}

// An element's text as the server wrote it: what the reader has opened does not count.
function plain(node) {
  const copy = node.cloneNode(true);
  for (const one of copy.querySelectorAll("details[open]")) one.removeAttribute("open");
  return copy.innerHTML;
}

function legends(fresh) {
  const timeline = document.getElementById("timeline");
  for (const old of timeline.querySelectorAll(":scope > .legend:not(.help)")) old.remove();
  timeline.append(...fresh.querySelectorAll("#timeline > .legend:not(.help)"));
}

started.then((page) => new Live(page));
