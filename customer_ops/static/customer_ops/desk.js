// Reads an order's page again while a refund of it is under way. The page works without this.
//
// Only elements with `data-live` are replaced, never a form: what is typed, focused, unfolded or marked stays. It rests
// while nobody looks at the tab, and ends with the last refund. All text comes escaped from the server.
(() => {
  "use strict";

  const refresh = document.getElementById("refresh");
  if (!refresh) return;

  const note = document.getElementById("refresh-note");
  const said = document.getElementById("refresh-said");
  const SLOWEST_SECONDS = 60;
  const PATIENCE_SECONDS = 10;
  let seconds = Number(refresh.dataset.seconds);
  let failures = 0;
  let timer = 0;
  let isReading = false;

  const live = (root) => [...root.querySelectorAll("[data-live][id]")];
  // What the server sent, not what became of it here: an unfolded <details> is no news.
  const served = new Map(live(document).map((part) => [part.id, part.innerHTML]));

  const standings = (root) =>
    new Map([...root.querySelectorAll("[data-said][id]")].map((card) => [card.id, card.dataset.said]));

  function isBusy(part) {
    const selection = document.getSelection();
    return Boolean(selection && !selection.isCollapsed && part.contains(selection.anchorNode));
  }

  function replace(part, fresh) {
    const html = fresh.innerHTML;
    if (served.get(part.id) === html || isBusy(part)) return;
    const unfolded = [...part.querySelectorAll("details[open][id]")].map((one) => one.id);
    const focused = part.contains(document.activeElement) ? document.activeElement.id : "";
    part.replaceChildren(...[...fresh.childNodes].map((child) => document.importNode(child, true)));
    served.set(part.id, html);
    for (const id of unfolded) document.getElementById(id)?.setAttribute("open", "");
    if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  }

  function show(page) {
    const before = standings(document);
    for (const part of live(document)) {
      const fresh = page.getElementById(part.id);
      if (fresh) replace(part, fresh);
    }
    const news = [...standings(document)].filter(([id, text]) => before.get(id) !== text);
    if (news.length) said.textContent = news.map(([, text]) => text).join(". ");
  }

  async function read() {
    const answer = await fetch(refresh.dataset.url, {
      cache: "no-store",
      signal: AbortSignal.timeout(PATIENCE_SECONDS * 1000),
    });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const again = page.getElementById("refresh");
    if (answer.ok && again) return { page, seconds: Number(again.dataset.seconds) };
    // Logged out, or no longer allowed to look: asking again would not help.
    if (answer.redirected || (answer.status >= 400 && answer.status < 500)) return null;
    throw new Error(`the server answered ${answer.status}`);
  }

  async function look() {
    if (isReading || document.hidden) return;
    isReading = true;
    try {
      const found = await read();
      failures = 0;
      seconds = found ? found.seconds : 0;
      if (found) show(found.page);
      note.textContent = found ? words() : "This page is not kept up to date any more: log in again, then refresh it.";
    } catch {
      failures += 1;
      note.textContent = "This page is not up to date: the server cannot be reached. It is tried again.";
    } finally {
      isReading = false;
      plan();
    }
  }

  const words = () => (seconds ? "It is kept up to date while a refund is under way." : "No refund is under way.");

  function plan() {
    clearTimeout(timer);
    const pause = Math.min(seconds * 2 ** Math.min(failures, 6), SLOWEST_SECONDS);
    if (seconds && !document.hidden) timer = setTimeout(look, pause * 1000);
  }

  document.addEventListener("visibilitychange", () => {
    clearTimeout(timer);
    if (seconds && !document.hidden) look();
  });

  // Whoever types an amount means a part; whoever goes for all needs no amount.
  for (const amount of document.querySelectorAll('input[name="amount"]')) {
    const [all, part] = amount.form.elements.how ?? [];
    if (!part) continue;
    amount.addEventListener("input", () => { part.checked = true; });
    all.addEventListener("change", () => { if (all.checked) amount.value = ""; });
  }

  if (seconds) note.textContent = words();
  plan();
})();
