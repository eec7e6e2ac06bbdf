// Watches a part of the page while somebody presses Tab. `dfFocus.isInside()` after each press looks at what has the
// focus and says whether it is a new stop of this part; `dfFocus.findings()` says what showed no sign of the focus, what
// showed it outside of the window, and what Tab never reached.
({within, inputs}) => {
  const part = document.querySelector(within);
  if (!part) throw new Error(`the page has no ${within}`);

  const hasOutline = style => style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0
    && !/, 0\)$|^transparent$/.test(style.outlineColor);
  const isShown = element => element.checkVisibility({checkOpacity: true, checkVisibilityCSS: true});
  const isInWindow = box => box.width > 0 && box.height > 0
    && box.right > 0 && box.left < innerWidth && box.bottom > 0 && box.top < innerHeight;

  const all = [...part.querySelectorAll(inputs)].filter(one => !one.disabled && one.tabIndex >= 0 && isShown(one));
  const before = new Map(all.map(one => [one, getComputedStyle(one).boxShadow]));
  const reached = new Set();
  const blind = new Map();

  const judge = element => {
    document.getAnimations().forEach(one => { try { one.finish(); } catch { one.cancel(); } });
    const style = getComputedStyle(element);
    const hasShadow = style.boxShadow !== 'none' && style.boxShadow !== before.get(element);
    if (!hasOutline(style) && !hasShadow) blind.set(element, 'shows no sign of the focus');
    else if (!isInWindow(element.getBoundingClientRect())) blind.set(element, 'has the focus outside of the window');
  };
  // Of a group of radio buttons Tab reaches one.
  const isOfReachedGroup = element => element.type === 'radio'
    && [...reached].some(other => other.type === 'radio' && other.name === element.name);

  // A date has stops of its own: day, month, year and the calendar.
  let datesLeft = 0;

  window.dfFocus = {
    isInside: () => {
      const now = document.activeElement;
      if (now.type === 'date' && reached.has(now) && datesLeft-- > 0) return true;
      if (now === document.body || !part.contains(now) || reached.has(now)) return false;
      reached.add(now);
      datesLeft = 4;
      judge(now);
      return true;
    },
    findings: () => [
      ...[...blind].map(([element, why]) => `${dfName(element)} ${why}`),
      ...all.filter(one => !reached.has(one) && !isOfReachedGroup(one))
        .map(one => `${dfName(one)} is never reached by Tab`),
    ],
  };

  // Focus on the part itself, and the next Tab goes to its first stop.
  const index = part.getAttribute('tabindex');
  part.setAttribute('tabindex', '-1');
  part.focus({preventScroll: true});
  part.addEventListener('blur', () => {
    if (index === null) part.removeAttribute('tabindex');
    else part.setAttribute('tabindex', index);
  }, {once: true});
}
