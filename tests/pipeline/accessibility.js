// What keeps somebody from reading a page: a sentence for each fault. Runs beside the page, which
// stands in a frame, for the page itself allows no script.
function faultsOf(page) {
  const faults = [];
  const all = (selector, root = page) => [...root.querySelectorAll(selector)];
  const style = (element) => page.defaultView.getComputedStyle(element);
  const check = (holds, fault, element) => {
    if (!holds) faults.push(element ? `${fault}: ${element.outerHTML.slice(0, 160)}` : fault);
  };
  const text = (element) => element.textContent.trim();

  check(page.documentElement.lang === "en", "the page has no language");
  check(page.title.trim(), "the page has no title");
  check(all("main").length === 1, "the page has not one main part");
  check(all("h1").length === 1, "the page has not one heading of level 1");
  let level = 0;
  for (const heading of all("h1, h2, h3, h4")) {
    const own = Number(heading.tagName[1]);
    check(own <= level + 1, "a level of headings is left out", heading);
    check(text(heading), "a heading is empty", heading);
    level = own;
  }

  const ids = all("[id]").map((element) => element.id);
  for (const id of new Set(ids.filter((one, place) => ids.indexOf(one) !== place))) check(false, `two elements have the id ${id}`);
  for (const element of all("[aria-labelledby]")) check(page.getElementById(element.getAttribute("aria-labelledby")), "its label is missing", element);

  for (const table of all("table")) {
    check(table.caption && text(table.caption), "a table has no caption", table);
    for (const header of all("th", table)) {
      check(text(header), "a header is empty", header);
      check(["col", "colgroup", "row"].includes(header.scope), "a header has no scope", header);
    }
    for (const row of all("tbody tr", table)) check(all("th[scope=row]", row).length === 1, "a row has no header", row);
  }
  for (const drawing of all("svg")) {
    const image = drawing.closest("[role=img]");
    check(image && (image.getAttribute("aria-label") || "").length > 20, "a plot is not told in words", drawing);
  }
  for (const region of all("main *").filter((element) => ["auto", "scroll"].includes(style(element).overflowX))) {
    const scrolls = region.scrollWidth > region.clientWidth;
    region.focus();
    check(!scrolls || (region.tabIndex === 0 && page.activeElement === region), "no key scrolls it", region);
    check(!scrolls || style(region).outlineStyle !== "none", "nobody sees that it has the focus", region);
    check(page.defaultView.innerWidth < 1100 || !scrolls, "its columns are cut", region);
  }
  check(page.documentElement.scrollWidth <= page.defaultView.innerWidth, "the page itself scrolls sideways");

  const parts = (colour) => (colour.match(/[\d.]+/g) || []).map(Number);
  const behind = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const colour = parts(style(one).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour.slice(0, 3);
    }
    return [255, 255, 255];
  };
  const brightness = (colour) => {
    const [red, green, blue] = colour.map((one) => (one /= 255) <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const contrast = (one, other) => {
    const [dark, light] = [brightness(one), brightness(other)].sort((a, b) => a - b);
    return (light + 0.05) / (dark + 0.05);
  };
  for (const element of all("body *")) {
    const owns = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!owns || ["STYLE", "SCRIPT", "METADATA"].includes(element.tagName.toUpperCase())) continue;
    const colour = parts(element.closest("svg") ? style(element).fill : style(element).color).slice(0, 3);
    check(contrast(colour, behind(element)) >= 4.5, "a text hardly differs from what is behind it", element);
  }
  const root = style(page.documentElement);
  for (const name of ["processed", "failed", "removed", "reaped", "p50", "p90", "p95", "p99"]) {
    const colour = (variable) => [1, 3, 5].map((place) => parseInt(root.getPropertyValue(variable).trim().slice(place, place + 2), 16));
    check(contrast(colour(`--${name}`), colour("--card")) >= 3, `the colour of ${name} hardly differs from what is behind it`);
  }
  return faults;
}
