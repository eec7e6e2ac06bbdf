/* The inbox works without this file. With it, a badge counts what waits, and the arrow keys go from request to request. */
(() => {
  "use strict";

  /* -- The badge: wherever a project links to the inbox. It rests while nobody looks at the tab. */
  const EVERY_MILLISECONDS = 30000;
  const LONGEST_MILLISECONDS = 300000;
  const badges = [...document.querySelectorAll("[data-df-badge]")];
  let wait = EVERY_MILLISECONDS;
  let timer = 0;
  let isOver = false;

  const show = ({ waiting, words }) => {
    for (const badge of badges) {
      badge.hidden = !waiting;
      if (badge.dataset.dfWords === words) continue;
      badge.dataset.dfWords = words;
      const seen = Object.assign(document.createElement("span"), { textContent: words.replace(" or more", "+") });
      seen.ariaHidden = "true";
      const heard = `(${words} ${waiting === 1 ? "request waits" : "requests wait"} for you)`;
      badge.replaceChildren(seen, Object.assign(document.createElement("span"), { className: "df-heard", textContent: heard }));
    }
  };

  async function count() {
    try {
      const answer = await fetch(badges[0].dataset.dfBadge, { credentials: "same-origin", cache: "no-store" });
      // Logged out, or nothing for this person: asking again would not help.
      if (answer.status >= 400 && answer.status < 500) isOver = true;
      else if (answer.ok) show(await answer.json());
      wait = answer.ok ? EVERY_MILLISECONDS : Math.min(wait * 2, LONGEST_MILLISECONDS);
    } catch {
      wait = Math.min(wait * 2, LONGEST_MILLISECONDS);
    }
    plan();
  }

  function plan() {
    clearTimeout(timer);
    if (!isOver && !document.hidden) timer = setTimeout(count, wait);
  }

  if (badges.length) {
    document.addEventListener("visibilitychange", () => {
      if (document.hidden || isOver) clearTimeout(timer);
      else count();
    });
    count();
  }

  /* -- Arrow keys, only while a request of the list has the focus: no key is taken from the rest of the page. */
  for (const hint of document.querySelectorAll("[data-df-script]")) hint.hidden = false;

  const STEPS = { ArrowDown: 1, ArrowUp: -1, Home: -Infinity, End: Infinity };
  document.addEventListener("keydown", (event) => {
    const rows = event.target.closest?.("[data-df-keys]");
    const step = STEPS[event.key];
    if (!rows || !step || event.ctrlKey || event.altKey || event.metaKey || event.shiftKey) return;
    const links = [...rows.querySelectorAll("a[href]")];
    const next = Math.max(0, Math.min(links.length - 1, links.indexOf(document.activeElement) + step));
    event.preventDefault();
    links[next].focus();
  });
})();
