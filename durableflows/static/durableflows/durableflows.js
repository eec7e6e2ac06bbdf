/* The engine's pages work without this file. With it, what shows rows follows the database, and a double click on an
   answer is sent once. It replaces only parts marked data-df-part: forms, and what is typed into them, stay. */
(() => {
  "use strict";

  for (const form of document.querySelectorAll("form[data-df-once]")) {
    form.addEventListener("submit", (event) => {
      if (form.dataset.dfSent) event.preventDefault();
      form.dataset.dfSent = "yes";
    });
    // The back button brings the page as it was left: it may be answered anew, and the server knows what counts.
    window.addEventListener("pageshow", () => delete form.dataset.dfSent);
  }

  /* What goes on in portions goes on by itself, until a person presses a button or leaves. */
  for (const form of document.querySelectorAll("form[data-df-goes-on]")) {
    const timer = setTimeout(() => form.requestSubmit(form.querySelector("button[name='next']")), 600);
    form.addEventListener("submit", () => clearTimeout(timer));
    window.addEventListener("pagehide", () => clearTimeout(timer));
  }

  /* One box ticks all of a list's; it is shown only where it works. */
  const offerAll = () => {
    for (const all of document.querySelectorAll("[data-df-all]")) {
      all.closest("label").hidden = false;
      all.onchange = () => {
        for (const one of document.querySelectorAll(`input[form="${all.dataset.dfAll}"]`)) one.checked = all.checked;
      };
    }
  };
  offerAll();

  const mark = document.querySelector("[data-df-refresh]");
  if (!mark) return;

  const LONGEST = 60000;
  const every = Number(mark.dataset.dfRefresh) * 1000;
  const said = mark.querySelector(".df-said");
  const served = new Map();
  let wait = every;
  let timer = 0;
  let isOver = false;

  const parts = () => document.querySelectorAll("[data-df-part]");
  for (const part of parts()) served.set(part.id, part.innerHTML);

  const within = (part, selector) => [...part.querySelectorAll(selector)];
  const FOCUSABLE = "a[href], summary, button, [tabindex='0']";

  /* Is a person typing, or marking text to copy it? */
  const isBusy = (part) => {
    const selection = document.getSelection();
    const isMarking = selection && !selection.isCollapsed && part.contains(selection.anchorNode);
    return isMarking || (part.contains(document.activeElement) && document.activeElement.matches("input, textarea, select"));
  };

  /* Put the new content in; what was opened, scrolled and focused stays so. */
  const swap = (part, fresh) => {
    const open = new Map(within(part, "details").map((one, index) => [one.id || index, one.open]));
    const scrolled = within(part, "[role='region']").map((one) => one.scrollTop);
    const focused = within(part, FOCUSABLE).indexOf(document.activeElement);
    const ticked = new Set(within(part, "input:checked").map((one) => one.value));
    part.replaceChildren(...document.importNode(fresh, true).childNodes);
    within(part, "details").forEach((one, index) => {
      const was = open.get(one.id || index);
      if (was !== undefined) one.open = was;
    });
    within(part, "input[type='checkbox']").forEach((one) => { one.checked = ticked.has(one.value); });
    within(part, "[role='region']").forEach((one, index) => { one.scrollTop = scrolled[index] || 0; });
    if (focused >= 0) within(part, FOCUSABLE)[focused]?.focus({ preventScroll: true });
  };

  /* Take over what has changed; says whether anything has. */
  const take = (page) => {
    let hasChanged = false;
    for (const part of parts()) {
      const fresh = page.getElementById(part.id);
      if (!fresh || fresh.innerHTML === served.get(part.id) || isBusy(part)) continue;
      served.set(part.id, fresh.innerHTML);
      swap(part, fresh);
      offerAll();
      hasChanged = true;
    }
    return hasChanged;
  };

  const stop = (words) => {
    isOver = true;
    said.textContent = words;
  };

  const again = () => {
    clearTimeout(timer);
    if (!isOver && !document.hidden) timer = setTimeout(look, wait);
  };

  async function look() {
    try {
      const answer = await fetch(location.href, { credentials: "same-origin", cache: "no-store" });
      // Logged out, or the right is gone: a person has to look.
      if (answer.redirected || [401, 403, 404].includes(answer.status)) return stop("This page is no longer up to date: reload it.");
      if (!answer.ok) throw new Error(String(answer.status));
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.querySelector(".df-refresh");
      if (!fresh) return stop("This page is no longer up to date: reload it.");
      const hasChanged = take(page);
      const now = fresh.querySelector("time");
      if (now) mark.querySelector("time").replaceWith(document.importNode(now, true));
      if (hasChanged) said.textContent = "Something has changed.";
      wait = hasChanged ? every : Math.min(wait * 1.3, LONGEST);
      if (!fresh.hasAttribute("data-df-refresh")) return stop("It has ended; nothing changes any more.");
    } catch {
      said.textContent = "The server does not answer; this page shows what was true before.";
      wait = Math.min(wait * 2, LONGEST);
    }
    again();
  }

  document.addEventListener("visibilitychange", () => {
    wait = every;
    if (!isOver && !document.hidden) look();
    else clearTimeout(timer);
  });
  again();
})();
