"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const live = document.body.dataset.live;

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
  const writeAges = (root) => {
    const now = Date.now() - ahead;
    for (const time of root.querySelectorAll("time")) {
      const text = units(Math.max(0, Math.floor((now - Date.parse(time.dateTime)) / 1000)));
      if (time.textContent !== text) time.textContent = text;
    }
  };

  // --- the filter

  const filter = byId("filter");
  const select = () => {
    const wanted = filter.value.trim().toLowerCase();
    let count = 0;
    for (const row of document.querySelectorAll("tr[data-find]")) {
      const gone = !row.dataset.find.includes(wanted);
      if (row.classList.contains("gone") !== gone) row.classList.toggle("gone", gone);
      count += gone ? 0 : 1;
    }
    for (const section of document.querySelectorAll("section.queue")) {
      section.classList.toggle("gone", !section.querySelector("tbody tr:not(.gone)"));
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

  // What the reader opened or has the focus on stays so; parts of a part move to the new one.
  const replace = (old, next) => {
    const open = [...old.querySelectorAll("details[open]")].length;
    if (open) for (const each of next.querySelectorAll("details")) each.open = true;
    const inner = next.querySelector("tbody[id]");
    if (inner) inner.append(...byId(inner.id).childNodes);
    if (old.classList.contains("gone")) next.classList.add("gone");
    const focused = old.contains(document.activeElement) ? document.activeElement.id : "";
    old.replaceWith(next);
    if (focused) byId(focused)?.focus({ preventScroll: true });
  };

  const arrange = (container, ids, fresh) => {
    const wanted = new Set(ids);
    for (const child of [...container.children]) if (!wanted.has(child.id)) child.remove();
    let at = container.firstElementChild;
    for (const id of ids) {
      const child = fresh.get(id) ?? byId(id);
      if (child === at) at = at.nextElementSibling;
      else if (child) container.insertBefore(child, at);
    }
  };

  const apply = (change) => {
    const fresh = new Map();
    for (const [id, html] of Object.entries(change.html)) {
      const old = byId(id), next = made(html);
      writeAges(next);
      if (old) replace(old, next);
      else fresh.set(id, next);
    }
    for (const [id, ids] of Object.entries(change.order)) {
      const container = byId(id) ?? [...fresh.values()].map((one) => one.querySelector(`#${CSS.escape(id)}`)).find(Boolean);
      if (container) arrange(container, ids, fresh);
    }
    byId("read").textContent = change.read;
    if (filter.value) select();
  };

  // --- the connection

  const status = byId("status"), pause = byId("pause");
  let held = null, paused = false, version = live, source = null;
  const say = (text, stale) => {
    if (status.textContent !== text) status.textContent = text;
    status.classList.toggle("stale", Boolean(stale));
  };
  const take = (change) => {
    ahead = Date.now() - Date.parse(change.now);
    if (!paused) return apply(change);
    if (!held || change.whole) held = change;
    else held = { ...change, whole: held.whole, html: { ...held.html, ...change.html }, order: { ...held.order, ...change.order } };
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
      apply(change);
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
      const found = await fetch(button.dataset.explain);
      const text = await found.text();
      if (found.ok) answer.innerHTML = text;
      else answer.textContent = text;
    } catch (error) {
      answer.textContent = `The server did not answer: ${error.message}`;
    }
  });

  writeAges(document);
  setInterval(() => document.hidden || writeAges(document), 5000);
  connect();
})();
