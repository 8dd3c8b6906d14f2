// @ts-check
/** The address from which other pages load `<checkrein-bar>`. It stays, wherever the element itself lies. */

export { CheckreinBar } from "./elements/checkrein-bar.js";
