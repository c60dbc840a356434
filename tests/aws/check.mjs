// Holds the files of deploy/aws, filled in, against the schemas of this folder and against what no schema says: settings of Slurm that a
// service keeps for itself, names in templates that nothing has, one interface for each network card.
// usage: check.mjs SCHEMAS CARDS (parallelcluster|eksctl|template FILE)...      CARDS: "p5.48xlarge 32 ...", for templates with interfaces
// Exit code 1 if one has a problem; each is a line that begins with the file's name.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import Ajv from "ajv";
import { parse } from "yaml";

const [folder, cards, ...asked] = process.argv.slice(2);
const tags = ["Ref", "Sub", "GetAtt", "If", "Not", "Or", "And", "Equals", "Condition", "Select", "Split", "Join"];
const nodeOf = (tag) => ["seq", "map"].map((collection) => ({ tag: `!${tag}`, collection, resolve: (node) => ({ [tag]: node.toJSON() }) }));
let whole, left, found; // of the file at hand

const schemaOf = (name) => JSON.parse(readFileSync(join(folder, `${name}.json`), "utf8")).schema;
const judges = {};
const judge = (name) => {
    const check = judges[name] ??= new Ajv({ strict: false, allErrors: true }).compile(schemaOf(name));
    if (!check(whole)) found.push(...check.errors.map((e) => `${e.instancePath} ${e.message} ${e.params.additionalProperty ?? ""}`));
    if (left) found.push(`not filled in: ${left}`);
};

// Of slurm.conf: what ParallelCluster writes itself, and what PCS lets others write.
const settings = JSON.parse(readFileSync(join(folder, "slurm-settings.json"), "utf8"));
const parallelcluster = () => {
    judge("parallelcluster");
    for (const setting of whole.Scheduling.SlurmSettings.CustomSlurmSettings.flatMap(Object.keys))
        if (settings.parallelcluster.denied.includes(setting.toLowerCase())) found.push(`ParallelCluster sets ${setting} itself`);
    for (const queue of whole.Scheduling.SlurmQueues)
        for (const resource of queue.ComputeResources) {
            if (!resource.Efa?.Enabled) found.push(`${resource.Name} has no EFA`);
            if (resource.MinCount > resource.MaxCount) found.push(`${resource.Name}: MinCount is above MaxCount`);
            if (queue.CapacityType === "CAPACITY_BLOCK" && resource.MinCount !== resource.MaxCount) found.push(`${resource.Name}: nodes of a block are static`);
        }
};
const eksctl = () => {
    judge("eksctl");
    const subnets = Object.keys(whole.vpc.subnets.private);
    for (const group of whole.managedNodeGroups) {
        if (group.efaEnabled && group.subnets?.length !== 1) found.push(`${group.name}: nodes with EFA are in one subnet`);
        for (const subnet of group.subnets ?? []) if (!subnets.includes(subnet)) found.push(`${group.name}: no subnet ${subnet}`);
        if (group.instanceMarketOptions && group.instanceMarketOptions.marketType !== "capacity-block") found.push(`${group.name}: market type`);
    }
};

// A template of CloudFormation: every name is a parameter's, a resource's or a condition's; of conditions only those that are there.
const used = (value, at) => {
    if (Array.isArray(value)) return value.forEach((inner, i) => used(inner, `${at}/${i}`));
    if (value === null || typeof value !== "object") return;
    for (const [key, inner] of Object.entries(value)) {
        const wanted = key === "Ref" ? [inner] : key === "GetAtt" ? [String(inner).split(".")[0]] : (key === "Sub" || key === "Fn::Sub")
            ? [...String(inner).matchAll(/\$\{([A-Za-z0-9:]+)\}/g)].map((match) => match[1]) : [];
        for (const name of wanted) if (typeof name === "string" && !name.startsWith("AWS::") && !(name in { ...whole.Parameters, ...whole.Resources })) found.push(`${at}: no ${name}`);
        if (key === "If" && !(inner[0] in (whole.Conditions ?? {}))) found.push(`${at}: no condition ${inner[0]}`);
        used(inner, `${at}/${key}`);
    }
};
// What a condition is for one machine.
const holds = (condition, machine) => {
    if (typeof condition === "string") return holds(whole.Conditions[condition], machine);
    if (condition.Condition) return holds(condition.Condition, machine);
    if (condition.Or) return condition.Or.some((one) => holds(one, machine));
    if (condition.Not) return !holds(condition.Not[0], machine);
    const [left, right] = condition.Equals;
    return (left.Ref === "Machine" ? machine : whole.Parameters[left.Ref].Default) === right;
};
const template = () => {
    used(whole, "");
    for (const resource of Object.values(whole.Resources)) {
        for (const { ParameterName: name } of resource.Properties?.SlurmConfiguration?.SlurmCustomSettings ?? [])
            if (!settings.pcs.allowed.includes(name)) found.push(`PCS does not let others set ${name}`);
        const interfaces = resource.Properties?.LaunchTemplateData?.NetworkInterfaces;
        if (!interfaces) continue;
        const counts = cards.trim().split(/\s+/);
        for (const machine of whole.Parameters.Machine.AllowedValues) {
            const there = interfaces.map((one) => one.If ? holds(one.If[0], machine) && one.If[1] : one).filter(Boolean);
            const wanted = Number(counts[counts.indexOf(machine) + 1]);
            if (there.length !== wanted) found.push(`${machine} has ${wanted} cards and gets ${there.length} interfaces`);
            if (there.some((one, i) => one.NetworkCardIndex !== i || one.DeviceIndex !== (i === 0 ? 0 : 1))) found.push(`${machine}: not one interface for each card`);
        }
    }
};

let problems = 0;
for (let i = 0; i + 1 < asked.length; i += 2) {
    const [kind, file] = asked.slice(i), text = readFileSync(file, "utf8");
    found = [];
    left = text.match(/\$\{[A-Z][A-Za-z]*\}/g);
    whole = parse(text, { customTags: tags.flatMap((tag) => [...nodeOf(tag), { tag: `!${tag}`, resolve: (value) => ({ [tag]: value }) }]) });
    ({ parallelcluster, eksctl, template })[kind]();
    for (const problem of found) console.log(`${file}: ${problem}`);
    problems += found.length;
}
console.log(`${asked.length / 2} files, ${problems} problems`);
process.exit(problems > 0 ? 1 : 0);
