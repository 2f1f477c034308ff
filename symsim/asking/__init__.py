"""Questions asked backwards: what moves a number, where two are equal, how large or small one may be; exact, with the branch that holds."""
