//! Rules about data that a tool mentions, in passing, as kept or given away.

use super::{Excuse, Rule};
use crate::Severity::{Note, Warning};

pub(crate) const RULES: &[Rule] = &[Rule {
    name: "shares-data",
    reason: "A tool that keeps or passes on what it was given for something else takes data under a pretext.",
    adds: true,
    original: false,
    excuse: Excuse::Words(
        r"\b(?:feedback|bug|bugs|support ticket|contact (?:us|sales|support)|permission|consent to|opt[- ]in|opted|anonymous(?:ly)?|anonymi[sz]ed|no (?:file|personal|user)|never|not (?:be )?(?:shared|stored|sent|retained|transmitted|kept|collected|logged)|encrypted|deleted after)\b",
    ),
    patterns: &[
        (
            Warning,
            r"\b(?:learns?|remembers?|tracks?|monitors?) (?:all |every |each )*(?:users? |your )(?:[a-z]+ )?(?:behaviou?r|habits|keystrokes|purchases|browsing)",
        ),
        (
            Warning,
            r"\b{kept}\b[^\n]{0,80}\b(?:on|in|to|with|by|into|at) our (?:[a-z]+ ){0,3}(?:servers?|cloud|backend|back-end|partners?|crm|database|team|models?|service|archive|infrastructure|lab|research|analytics|company|developers?|index)\b",
        ),
        (
            Warning,
            r"\b{kept}\b[^\n]{0,80}\b(?:with|to) (?:[a-z]+ ){0,3}(?:third[- ]part(?:y|ies)|(?:mobility |business |insurance |marketing |data |advertising |commercial )?partners\b|advertisers?|advertising|marketing (?:partners|database|purposes|team)|insurers|insurance (?:partners|companies)|data brokers?|affiliates|partner communications|its (?:developers|authors|vendor|makers))\b",
        ),
        (
            Warning,
            r"\b(?:{yours}[^\n]{0,80}\b{gone}|{gone}[^\n]{0,80}{yours})\b[^\n]{0,80}\b(?:to improve (?:our|the|its|service|accuracy|quality|models?)\b|for (?:quality|training|diagnostic|analytics|support|benchmark|research|profil|marketing|personali|advertis|follow-up)|(?:quality|training|analytics|marketing|research|profiling) purposes|in order to compare|so that (?:support|our|we)\b|for (?:model|service|product) improvement|accuracy optimi[sz]ation)",
        ),
        (
            Warning,
            r"\b(?:for (?:diagnostics|quality|analytics|telemetry|debugging|accuracy|improvement|compliance)|to improve[^\n]{0,30}|as part of [a-z ]{0,20}|during [a-z ]{0,20}|while [a-z ]{0,20}|on the way|in the background|behind the scenes|also|silently|additionally),? [^\n]{0,50}(?:transmit|send|upload|log|record|captur|collect|harvest|catalogu)(?:s|es|ed|e|ing)?\b[^\n]{0,60}{private}|{private}[^\n]{0,60}\b(?:transmitted|sent|uploaded|reported|logged|made available) [^\n]{0,24}(?:telemetry|analytics|third part|remote|external|collector)|secrets[^\n]{0,40}(?:reported|sent) to a |{private}[^\n]{0,80}\b{kept}\b[^\n]{0,60}(?:in the background|behind the scenes|background|during|\bour\b|catalogu?ed)",
        ),
        (
            Warning,
            r"(?:usage |telemetry|analytics)[^\n]{0,30} (?:including|with|such as|contain[a-z]*) [^\n]{0,40}(?:conversation|user data|personal|file contents|prompts?|code\b|documents)|(?:dictionary|history|index|cache|log|clipboard) (?:is )?(?:periodically )?(?:synced|shared|uploaded|transmitted|synchroni[sz]ed) (?:across (?:all )?(?:your |the )?(?:devices|users|accounts)|with (?:third|our|partners|its)|to (?:our|the cloud|a remote|its)|via (?:our|the|a)? ?cloud)|(?:files?|documents?|contents?|credentials|recordings?|images?|texts?|keystrokes|contacts|messages) [^\n]{0,20}(?:is|are) (?:automatically |silently |periodically |secretly )+(?:uploaded|transmitted|synced|backed up|sent|shared|forwarded|mirrored)|along with (?:any|all|the) (?:secrets?|credentials|passwords|keys|tokens)|environment (?:details|variables|data)[^\n]{0,60}\b(?:to|with) (?:its|our|the) (?:developers|vendor|authors|servers?|maintainers)",
        ),
        (
            Warning,
            r"\b(?:texts?|documents?|files?|data|content|urls?|links?|passwords?|inputs?|queries|images?|photos?|words|addresses|entries|history|results?|information|values?) (?:is|are|may be|will be|gets?|can be) (?:also |then |temporarily |permanently |automatically |securely |[a-z]+ and )*(?:used|retained|stored|logged|cached|kept|saved|analy[sz]ed|collected|recorded|shared|sent|uploaded|transmitted|maintained|aggregated)\b[^\n]{0,50}(?:to train|for training|(?:to improve|improving) (?:our|the|its|future) (?:models?|service|predictions?|products?)|machine learning|for (?:profiling|marketing|advertising|targeted|quality assurance|accuracy optimi|service improvement|product improvement|research purposes)|(?:with|to) (?:external|third|our|advertis|research) ?(?:part|servers?|advertis|research|services?|vendors?))|\bbuild(?:s|ing)? (?:a |an |up )*(?:detailed |personal |user |spending |behaviou?ral |interest |shopping |advertising )+profiles?\b|tracking (?:pixels?|redirect|beacon) |through our (?:tracking|analytics|redirect|logging)",
        ),
        (
            Note,
            r"\b(?:automatically|silently|periodically) (?:uploads?|sends?|transmits?|shares?|backs? up|syncs?|forwards?) [^\n]{0,60}(?:files?|data|content|history|credentials|contacts|texts|messages|documents)|\bis (?:maintained|retained|collected|logged|catalogu?ed) for\b|(?:learning|training) (?:dictionary|data ?set)|data is considered non-sensitive",
        ),
    ],
    found: "Checks grammar. Submitted texts are retained on our servers.",
    passed: "Forwards logs to the server that you configure. Shares a file with a colleague. Anonymous usage data is sent to improve the product.",
}];
