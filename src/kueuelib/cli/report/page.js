"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const live = document.body.dataset.live;

  // --- work in slices, so that the page answers while it changes

  const SLICE = 25, ROWS = 400;
  const pauseOf = () => new Promise((go) => { setTimeout(go); });
  const frame = () => new Promise((go) => { requestAnimationFrame(() => { setTimeout(go); }); });
  const each = async (items, work) => {
    let end = performance.now() + SLICE;
    for (const item of items) {
      work(item);
      if (performance.now() < end || document.hidden) continue;
      await pauseOf();
      end = performance.now() + SLICE;
    }
  };

  // --- ages, as kubectl writes them

  const units = (seconds) => {
    const minutes = Math.floor(seconds / 60), hours = Math.floor(minutes / 60);
    const days = Math.floor(hours / 24);
    const pair = (big, one, small, two) => (small ? `${big}${one}${small}${two}` : `${big}${one}`);
    if (seconds < 120) return `${seconds}s`;
    if (minutes < 10) return pair(minutes, "m", seconds % 60, "s");
    if (minutes < 180) return `${minutes}m`;
    if (hours < 8) return pair(hours, "h", minutes % 60, "m");
    if (hours < 48) return `${hours}h`;
    if (hours < 192) return pair(days, "d", hours % 24, "h");
    if (days < 730) return `${days}d`;
    const years = Math.floor(days / 365);
    return years < 8 ? pair(years, "y", days % 365, "d") : `${years}y`;
  };

  // The clock of the server counts: what is read says how far this one is off.
  let ahead = 0;
  const writeAge = (time) => {
    const seconds = Math.floor((Date.now() - ahead - Date.parse(time.dateTime)) / 1000);
    const text = units(Math.max(0, seconds));
    if (time.textContent !== text) time.textContent = text;
  };
  const writeAges = (root) => each(root.querySelectorAll("time"), writeAge);

  // --- the filter

  const filter = byId("filter");
  let selections = 0;
  const select = async () => {
    const wanted = filter.value.trim().toLowerCase(), mine = ++selections;
    const some = new Set(), shown = [], turned = [];
    for (const row of document.querySelectorAll("tr[data-find]")) {
      const gone = !row.dataset.find.includes(wanted);
      if (row.classList.contains("gone") !== gone) turned.push(row);
      if (!gone) shown.push(row);
    }
    for (const row of shown) some.add(row.closest("section.queue"));
    // The layout of a frame takes its time for every row that turned.
    for (let at = 0; at < turned.length; at += ROWS) {
      for (const row of turned.slice(at, at + ROWS)) row.classList.toggle("gone");
      if (!document.hidden) await frame();
      if (mine !== selections) return;
    }
    const count = shown.length;
    for (const section of document.querySelectorAll("section.queue")) {
      section.classList.toggle("gone", !some.has(section));
    }
    byId("found").textContent = wanted ? `${count} found` : "";
  };
  let soon = 0;
  filter.addEventListener("input", () => {
    clearTimeout(soon);
    soon = setTimeout(select, 150);
  });
  if (!live) return;

  // --- changes

  const made = (html) => {
    const template = document.createElement("template");
    template.innerHTML = html;
    return template.content.firstElementChild;
  };

  // What holds other parts is changed in place, since to move them costs a layout of them all.
  const renew = (old, next) => {
    for (const { name, value } of next.attributes) old.setAttribute(name, value);
    if (old.matches("tbody[id]")) return;
    const [mine, theirs] = [[...old.childNodes], [...next.childNodes]];
    if (mine.map((one) => one.nodeName).join() !== theirs.map((one) => one.nodeName).join()) {
      const inner = next.querySelector("tbody[id]");
      if (inner) inner.replaceWith(byId(inner.id));
      old.replaceChildren(...next.childNodes);
      return;
    }
    mine.forEach((one, at) => {
      if (one.nodeType === Node.ELEMENT_NODE) renew(one, theirs[at]);
      else if (one.nodeValue !== theirs[at].nodeValue) one.nodeValue = theirs[at].nodeValue;
    });
  };

  // What the reader opened or has the focus on stays so.
  const replace = (old, next) => {
    if (next.querySelector("tbody[id]")) return renew(old, next);
    if (old.querySelector("details[open]")) {
      for (const each of next.querySelectorAll("details")) each.open = true;
    }
    if (old.classList.contains("gone")) next.classList.add("gone");
    const focused = old.contains(document.activeElement) ? document.activeElement.id : "";
    old.replaceWith(next);
    if (focused) byId(focused)?.focus({ preventScroll: true });
  };

  const arrange = async (container, ids, fresh) => {
    const wanted = new Set(ids);
    await each([...container.children], (child) => { if (!wanted.has(child.id)) child.remove(); });
    let at = container.firstElementChild;
    await each(ids, (id) => {
      const child = fresh.get(id) ?? byId(id);
      if (child === at) at = at?.nextElementSibling;
      else if (child) container.insertBefore(child, at);
    });
  };

  const apply = async (change) => {
    const fresh = new Map(), find = (id) => byId(id) ?? fresh.get(id);
    await each(Object.entries(change.html), ([id, html]) => {
      const old = byId(id), next = made(html);
      for (const time of next.querySelectorAll("time")) writeAge(time);
      if (old) replace(old, next);
      else fresh.set(id, next);
    });
    await each(Object.entries(change.marks), ([id, text]) => {
      find(id).firstElementChild.textContent = text;
    });
    for (const [id, ids] of Object.entries(change.order)) {
      const container = byId(id) ?? [...fresh.values()].map((one) => one.querySelector(`#${CSS.escape(id)}`)).find(Boolean);
      if (container) await arrange(container, ids, fresh);
    }
    byId("read").textContent = change.read;
    if (filter.value) await select();
  };
  let last = Promise.resolve();
  const enqueue = (change) => { last = last.then(() => apply(change)).catch(reportError); };

  // --- the connection

  const status = byId("status"), pause = byId("pause");
  let held = null, paused = false, version = live, source = null;
  const say = (text, stale) => {
    if (status.textContent !== text) status.textContent = text;
    status.classList.toggle("stale", Boolean(stale));
  };
  const take = (change) => {
    ahead = Date.now() - Date.parse(change.now);
    if (!paused) return enqueue(change);
    if (!held || change.whole) held = change;
    else held = { ...change, whole: held.whole, html: { ...held.html, ...change.html }, order: { ...held.order, ...change.order }, marks: { ...held.marks, ...change.marks } };
  };
  const connect = () => {
    source = new EventSource(`/events?from=${encodeURIComponent(version)}`);
    source.addEventListener("open", () => say(paused ? "Paused." : "Live."));
    source.addEventListener("change", (event) => {
      version = event.lastEventId;
      take(JSON.parse(event.data));
    });
    source.addEventListener("trouble", (event) => say(JSON.parse(event.data), true));
    source.addEventListener("well", () => say(paused ? "Paused." : "Live."));
    source.addEventListener("error", () => {
      say("Not connected: this is the last known state.", true);
      if (source.readyState !== EventSource.CLOSED) return;
      source.close();
      setTimeout(connect, 3000);
    });
  };
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    say(paused ? "Paused." : "Live.");
    if (!paused && held) {
      const change = held;
      held = null;
      enqueue(change);
    }
  });

  // --- whole answers

  const dialog = byId("answers");
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button[data-explain]");
    if (!button) return;
    byId("answer-title").textContent = button.getAttribute("aria-label").replace(/^Explain /, "");
    const answer = byId("answer");
    answer.textContent = "Searching for the smallest change ...";
    dialog.showModal();
    dialog.addEventListener("close", () => byId(button.id)?.focus(), { once: true });
    try {
      const response = await fetch(button.dataset.explain);
      const text = await response.text();
      if (response.ok) answer.innerHTML = text;
      else answer.textContent = text;
    } catch (error) {
      answer.textContent = `The server did not answer: ${error.message}`;
    }
  });

  writeAges(document);
  setInterval(() => document.hidden || writeAges(document), 5000);
  connect();
})();
