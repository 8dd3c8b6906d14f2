/** The words of `checkrein.core.wording`, by table. The server makes this module; there is no file of it. */
declare const WORDING: Readonly<Record<string, Readonly<Record<string, string>>>>;
export default WORDING;
