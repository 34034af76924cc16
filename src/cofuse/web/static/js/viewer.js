// A picture of any size: OpenSeadragon, which asks only for the tiles that are seen, with our keys and
// with named layers that lie over each other.

import * as api from "./api.js";

/* global OpenSeadragon */
const calm = window.matchMedia("(prefers-reduced-motion: reduce)").matches;

// OpenSeadragon would put a <style> into the page, which the content policy forbids, unless it finds its
// own there. An element of that name in no namespace is found, and means nothing to the browser.
function forestallInlineStyle() {
  const decoy = document.createElementNS(null, "style");
  decoy.setAttribute("data-openseadragon-mobile-css", "true");
  document.head.append(decoy);
}

/** The tiles of one picture of a job; `version` changes when the picture does. */
export function tileSource(job, picture, version = 0) {
  return {
    width: picture.width,
    height: picture.height,
    tileSize: picture.tile,
    tileOverlap: picture.overlap,
    minLevel: 0,
    getTileUrl: (level, column, row) => api.tileUrl(job.id, picture.name, level, column, row, version),
  };
}

export class DeepViewer {
  constructor(element, label) {
    if (!document.querySelector("style[data-openseadragon-mobile-css]")) forestallInlineStyle();
    this.element = element;
    // key -> {source, rank, items}: what was asked for last, and the items on the stage. The newest is
    // the last; those before it stay until it is drawn, so that nothing flickers.
    this.layers = new Map();
    this.osd = OpenSeadragon({
      element,
      drawer: "canvas",
      showNavigationControl: false,
      visibilityRatio: 0.4,
      minZoomImageRatio: 0.7,
      maxZoomPixelRatio: 24,
      zoomPerScroll: 1.25,
      preserveImageSizeOnResize: true,
      animationTime: calm ? 0 : 0.5,
      springStiffness: 9,
      blendTime: 0,
      timeout: 120000,
      gestureSettingsMouse: { clickToZoom: false, dblClickToZoom: true },
      gestureSettingsTouch: { clickToZoom: false, dblClickToZoom: true },
      gestureSettingsPen: { clickToZoom: false },
    });
    this.fitted = true; // the whole picture is shown, and should be after a change of size, too
    for (const name of ["canvas-drag", "canvas-scroll", "canvas-pinch", "canvas-double-click"]) {
      this.on(name, () => {
        this.fitted = false;
      });
    }
    this.on("resize", () => this.fitted && requestAnimationFrame(() => this.osd.viewport?.goHome(true)));
    // Pixels are shown as they are when they are larger than the screen's.
    this.on("zoom", () => this.osd.drawer.setImageSmoothingEnabled(!(this.scale() > 2.5)));
    const canvas = this.osd.canvas;
    canvas.setAttribute("role", "application");
    this.describe(label);
    // Before OpenSeadragon, whose keys also turn and mirror the picture.
    element.addEventListener("keydown", (event) => this.#key(event), { capture: true });
  }

  describe(label) {
    this.osd.canvas.setAttribute("aria-label", `${label}. Arrow keys move, plus and minus zoom, 0 shows all.`);
  }

  on(name, listener) {
    this.osd.addHandler(name, listener);
  }

  off(name, listener) {
    this.osd.removeHandler(name, listener);
  }

  /** Show, change or, without a source, take away a layer. Resolves with its item, or null. */
  async layer(key, source, { rank = 0, opacity = 1 } = {}) {
    const layer = this.layers.get(key) ?? { items: [] };
    this.layers.set(key, Object.assign(layer, { source, rank }));
    if (!source) {
      this.#removeBefore(layer, layer.items.length);
      return null;
    }
    const item = await new Promise((resolve, reject) => {
      this.osd.addTiledImage({
        tileSource: source,
        opacity,
        success: (event) => resolve(event.item),
        error: (event) => reject(new Error(event.message)),
      });
    });
    if (layer.source !== source) {
      this.osd.world.removeItem(item); // something else was asked for meanwhile
      return null;
    }
    const below = [...this.layers.values()].filter((other) => other.rank <= rank).flatMap(({ items }) => items);
    this.osd.world.setItemIndex(item, below.length);
    layer.items.push(item);
    const settle = () => this.#removeBefore(layer, layer.items.indexOf(item));
    if (item.getFullyLoaded()) settle();
    else item.addOnceHandler("fully-loaded-change", settle);
    return item;
  }

  /** Take the first `count` items of a layer off the stage. */
  #removeBefore(layer, count) {
    for (const item of layer.items.splice(0, Math.max(0, count))) this.osd.world.removeItem(item);
  }

  clear() {
    this.fitted = true;
    for (const key of this.layers.keys()) this.layer(key, null);
  }

  /** All items of a layer, the newest last. */
  items(key) {
    return this.layers.get(key)?.items ?? [];
  }

  base() {
    return this.osd.world.getItemAt(0) ?? null;
  }

  /** Pixels of the screen (as CSS counts them) for one pixel of the picture. */
  scale() {
    const base = this.base();
    return base ? base.viewportToImageZoom(this.osd.viewport.getZoom()) : 1;
  }

  /** From a place in the viewer's element to one in the picture, and back. */
  toPicture(point) {
    return this.base().viewerElementToImageCoordinates(new OpenSeadragon.Point(point.x, point.y));
  }

  toElement(x, y) {
    return this.base().imageToViewerElementCoordinates(new OpenSeadragon.Point(x, y));
  }

  zoomBy(factor) {
    this.fitted = false;
    this.osd.viewport.zoomBy(factor).applyConstraints();
  }

  fit() {
    this.fitted = true;
    this.osd.viewport.goHome();
  }

  actual() {
    const base = this.base();
    this.fitted = false;
    if (!base) return;
    const { viewport } = this.osd;
    const target = base.imageToViewportZoom(1 / window.devicePixelRatio);
    // A small picture is smaller at its own size than it could otherwise become.
    viewport.minZoomLevel = Math.min(0.7 * viewport.getHomeZoom(), target);
    viewport.zoomTo(target).applyConstraints();
  }

  moveBy(x, y) {
    this.fitted = false;
    const size = this.osd.viewport.getContainerSize();
    const step = this.osd.viewport.deltaPointsFromPixels(new OpenSeadragon.Point(x * size.x, y * size.y));
    this.osd.viewport.panBy(step).applyConstraints();
  }

  /** What is seen: the whole picture, or a place of it and how large. */
  view() {
    const { viewport } = this.osd;
    // Viewports count in widths of their element: a view goes into another in pixels of the screen.
    const size = viewport.getZoom(true) * viewport.getContainerSize().x;
    return { fitted: this.fitted, centre: viewport.getCenter(true), size };
  }

  /** Take the view of another viewer, of the same picture. */
  take({ fitted, centre, size }) {
    const { viewport } = this.osd;
    this.fitted = fitted;
    if (fitted) {
      viewport.goHome(true);
      return;
    }
    const zoom = size / viewport.getContainerSize().x;
    viewport.minZoomLevel = Math.min(0.7 * viewport.getHomeZoom(), zoom);
    viewport.zoomTo(zoom, null, true);
    viewport.panTo(centre, true);
  }

  destroy() {
    this.clear();
    this.osd.destroy();
  }

  /** Say that the middle of the view was chosen, as a click there would. */
  chooseMiddle() {
    const size = this.osd.viewport.getContainerSize();
    this.osd.raiseEvent("choose-middle", { position: new OpenSeadragon.Point(size.x / 2, size.y / 2) });
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target !== this.osd.canvas) return;
    const far = event.shiftKey ? 0.5 : 0.1;
    const actions = {
      "+": () => this.zoomBy(1.4),
      "=": () => this.zoomBy(1.4),
      "-": () => this.zoomBy(1 / 1.4),
      _: () => this.zoomBy(1 / 1.4),
      0: () => this.fit(),
      1: () => this.actual(),
      ArrowLeft: () => this.moveBy(-far, 0),
      ArrowRight: () => this.moveBy(far, 0),
      ArrowUp: () => this.moveBy(0, -far),
      ArrowDown: () => this.moveBy(0, far),
      Enter: () => this.chooseMiddle(),
    };
    if (event.key === "Tab" || event.key === "Escape") return;
    event.stopPropagation();
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }
}
