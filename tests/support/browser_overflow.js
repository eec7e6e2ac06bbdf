// What makes the page wider than its window: sentences, none when nothing does. What scrolls inside a frame is no fault.
() => {
  const root = document.documentElement;
  const width = root.clientWidth;
  if (root.scrollWidth <= width) return [];

  const end = element => Math.round(element.getBoundingClientRect().right);
  const isFramed = element => {
    for (let box = element.parentElement; box && box !== document.body; box = box.parentElement)
      if (getComputedStyle(box).overflowX !== 'visible' && end(box) <= width + 1) return true;
    return false;
  };
  const wide = [...document.body.querySelectorAll('*')].filter(one => end(one) > width + 1 && !isFramed(one));
  const innermost = wide.filter(one => !wide.some(other => other !== one && one.contains(other)));
  return [
    `the page is ${root.scrollWidth} px wide in a window of ${width} px`,
    ...innermost.slice(0, 8).map(one => `${dfName(one)} ends at ${end(one)} px`),
  ];
}
