// What the user chose for all panels, and what the deployment can do.

export const choices = {
  voice: "", // the deployment's first one
  speech: true,
};
