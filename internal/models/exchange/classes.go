package exchange

import (
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/rathcluster/rath/llm"
)

// class is a class of failures and the signs of it in an answer. All signs that are set
// must hold: one of the statuses, none of the others; one of the fields, or one text of
// each list. Texts are matched in the plain form.
type class struct {
	code   llm.Code
	status []int // of the answer; 0 is that of an error in a stream
	not    []int
	fields []string // a code, type or reason, in lower-case letters and digits alone
	texts  [][]pattern
	none   []pattern
	holds  func(text string) bool
}

// pattern is a regular expression that is compiled when a failure is classified for the
// first time: most programs never need one, and all of them take 10 ms.
type pattern func() *regexp.Regexp

func re(patterns ...string) []pattern {
	all := make([]pattern, len(patterns))
	for i, p := range patterns {
		all[i] = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(p) })
	}
	return all
}

// The words that several classes share, all in the plain form: lower case, with only
// letters, digits and the marks . , : ; < > = + % /.
var (
	// pace are words for a rate limit, which passes.
	pace = re(
		`rate ?limit|throttl|too many requests|too many concurrent|tokens? ?/ ?(min|sec|day|hour)`,
		`\b(per|a|each|every|last|past|this|current) (one |1 |24 )?(minute|min|second|sec|hour|day|month|24 hours)s?\b`,
		`\b(tpm|rpm|tpd|rpd|tps|rps|qps|qpm|itpm|otpm)\b`,
		`resource (has been )?exhausted|quota (exceeded|exhausted|limit)|exceed\w* (\w+ ){0,5}quota|over quota|requests? limit (reached|exceeded)|request (count|frequency)`,
		`频率|速率|限流|并发|请求(数|次数)?(过多|超过)|每分钟`,
	)
	// wait are words that request another try of the same request.
	wait = re(
		`\b(please|must|to|and|should|then) wait\b|wait (a |for |before|until|and)|slow down|back ?off`,
		`(try|trying|retry|retrying|again|requests?) (your request |the request )?(again )?(later|shortly|soon|momentarily|after|in) ?(a |some |few |\d|$)|(try again|retry)( your request)? (later|shortly|soon)|temporar`,
		`稍后|繁忙`,
	)
	// limits are words for an exceeded limit.
	limits = re(
		`exceed|too (long|large|big|many|much)|\b(longer|larger|greater|bigger|higher|more) than\b|over(flow| the| its|size)|above|beyond|out of range`,
		`maximum|\bmax\b|\blimit|at most|up to|\bonly\b|must (be|have) (less|fewer|shorter|<|at most|no more)|must not|cannot|can not|does not fit|doesn t fit|not fit|<= ?\d|\d ?> ?\d|reduce|shorten`,
	)
	// sent are words for the contents of a request.
	sent = re(`\b(prompts?|inputs?|messages?|conversation|requests?|requested|context|history|chat|sequence|payload|text|query|document|you (sent|passed))\b`)
	// reply are words for the requested length of an answer.
	reply = re(`\b(max(imum)?|budget) ?((completion|output|new|generated|thinking) ?)?tokens\b`, `\b(output|completion|generated) tokens?\b`, `requested generation`)
	// ofPrompt are words that certainly concern the request, beside words for an
	// answer.
	ofPrompt = re(`\b(prompts?|inputs?|context|messages|conversation|history)\b|request (has|contains)|tokens in (the |your )?request|tokens from`)
	// other are parts of a request that a summary does not shorten.
	other = re(`\b(image|images|audio|video|file|files|pdf|pages?|pixels|uri|url|header|headers|cookie|name|names|description|stop|user|metadata|enum|schema|tools? (count|list)|tools\b.{0,20}(too long|too many|maximum length)|ids?(?: |$)(?:[^ ]* )?(?:too|exceed)|key|string)\b`)
)

// lasting are the statuses that outweigh a text: the key, the account, the address and
// the rate are independent of the request.
var lasting = []int{
	http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed,
	http.StatusProxyAuthRequired, http.StatusRequestTimeout, http.StatusUnsupportedMediaType, http.StatusUnavailableForLegalReasons,
	http.StatusTooManyRequests, http.StatusGatewayTimeout,
}

// transient are the statuses for which a text about the request is ignored.
var transient = []int{http.StatusUnauthorized, http.StatusTooManyRequests, 500, 501, 502, 503, 504, 505, 507, 508, 509, 520, 521, 522, 523, 524, 525, 526, 527, 529, 530}

// classes are tried in their order; the first match counts. A failure without a match
// has the code of its status.
var classes = []class{
	// The request is too long: by a code, by the status, or because it alone exceeds
	// the limit per minute, so that no wait helps.
	{code: llm.CodeContextLength, not: []int{401, 402, 403}, fields: []string{
		"contextlengthexceeded", "contextlengthexceedederror", "contextlengtherror", "contextwindowexceeded", "contextwindowexceedederror", "modelcontextwindowexceeded",
		"contextsizeexceeded", "exceedcontextsizeerror", "contextlimitexceeded", "contexttoolong", "contextoverflow", "contexttoolarge",
		"modelmaxprompttokensexceeded", "maxprompttokensexceeded", "maxtokensexceeded", "prompttokensexceeded", "inputtokensexceeded", "tokenlimitexceeded", "tokenslimitreached", "tokenlimitreached",
		"inputtoolong", "inputtoolongerror", "inputlengtherror", "prompttoolong", "prompttoolongerror", "requesttoolarge", "requesttoolargeerror", "payloadtoolarge", "requestentitytoolarge", "contenttoolarge", "inputlimitexceeded",
	}},
	{code: llm.CodeContextLength, fields: []string{"stringabovemaxlength"}, texts: [][]pattern{re(`messages \d+ ?\.content|\binput\b`)}},
	{code: llm.CodeContextLength, status: []int{http.StatusRequestEntityTooLarge}},
	{code: llm.CodeContextLength, not: []int{401, 402, 403}, texts: [][]pattern{pace, re(`too large|too big|must be reduced|reduce (your|the)`)}, holds: alone},

	// The account has no credit. A text about a quota counts only without a request to
	// wait.
	{code: llm.CodeQuota, fields: []string{
		"insufficientquota", "insufficientbalance", "insufficientcredits", "insufficientfunds", "exceededcurrentquotaerror", "billinghardlimitreached", "billingnotactive", "billingerror",
		"paymentrequired", "notenoughbalance", "arrearage", "accountoverdue", "accountoverdueerror", "creditbalancetoolow", "quotanotenough", "allocationquotafreetieronly", "freetieronly",
	}},
	{code: llm.CodeQuota, texts: [][]pattern{re(
		`insufficient (quota|balance|credits?|funds)|not enough (balance|credits?|quota)|payment required|credit balance|billing (hard limit|is not active|not active)|arrear|overdue|out of credits|(used|exhausted|spent) all (of )?(its |your |the )?(\w+ )?credits|(exceeded|reached|ran out of|exhausted) (\w+ ){0,6}(credits?|spending|spend limit|usage limits?|budget)|spending (limit|cap)|add (more )?(credits|funds)|top up|recharge your|余额不足|欠费`,
	)}},
	{code: llm.CodeQuota, texts: [][]pattern{re(`exceeded your current quota|check your plan and billing|billing details|free (tier|quota|trial)[^.]{0,40}(exhausted|used up|expired|exceeded)|usage limit (reached|exceeded)`)}, holds: func(text string) bool {
		return waitIn(text) == 0
	}},

	// The content is rejected.
	{code: llm.CodeRefused, not: transient, fields: []string{
		"contentfilter", "contentfiltered", "contentpolicyviolation", "contentpolicy", "responsibleaipolicyviolation", "datainspectionfailed", "moderationblocked", "invalidprompt",
		"prohibitedcontent", "inputmoderation", "outputmoderation", "sensitivecontentdetected", "sensitivewordserror", "contentmoderation", "safety",
	}},
	{code: llm.CodeRefused, not: transient, texts: [][]pattern{re(
		`content ?(filter|policy|management policy|safety|moderation|exists risk|violates)|responsibleai|safety (system|check|policy|settings|reasons?)|usage (policy|policies|guidelines)|considered high risk|inappropriate content|data ?inspection|(requires|flagged|blocked) (\w+ ){0,4}(moderation|policy|policies|safety|guardrails?)|(was|were|been) flagged|prohibited content|sensitive (content|words|information)|guardrail|敏感|违规|不安全`,
	)}},

	// A rate limit. Words for the length of a request beside one belong to the limit.
	{code: llm.CodeOverloaded, not: []int{401, 402, 403, 404}, fields: []string{
		"overloaded", "overloadederror", "engineoverloadederror", "engineoverloaded", "serviceunavailable", "serviceunavailableerror", "serviceunavailableexception", "modelnotreadyexception", "serveroverloaded", "capacityexceeded", "nocapacity",
	}, none: slices.Concat(re(`internal`), pace)},
	{code: llm.CodeRateLimited, not: []int{401, 402, 404}, fields: []string{
		"ratelimitexceeded", "ratelimitexceedederror", "ratelimiterror", "ratelimit", "ratelimited", "ratelimitreached", "ratelimitreachederror", "throttling", "throttlingexception", "throttlederror", "throttled",
		"toomanyrequests", "toomanyrequestsexception", "toomanyrequestserror", "resourceexhausted", "requestlimitexceeded", "requestthrottled", "throttlingratequota", "throttlingallocationquota", "throttlingburstrate",
		"limitrequests", "limitburstrate", "quotaexceeded", "servicequotaexceededexception", "tokensperminute", "accountratelimitexceeded", "modelaccounttpmratelimitexceeded", "tokensperminutelimitexceeded",
	}},
	{code: llm.CodeOverloaded, not: []int{401, 402, 404, 429}, texts: [][]pattern{re(
		`overload|(at|no|out of|insufficient|exceeds?|lacks?) (\w+ )?capacity|capacity (exceeded|constraints?|reached)|(engine|server|service|system|model|queue) (\w+ )?(is |are )?(too |currently |temporarily |very )?(busy|full)|server busy|high demand|(currently|still|is) loading|loading model|pending requests|queue is full|繁忙|过载`,
	)}, none: slices.Concat(re(`rate ?limit|throttl`), pace[1:3])},
	{code: llm.CodeRateLimited, not: []int{401, 402, 404}, texts: [][]pattern{pace}},
	{code: llm.CodeRateLimited, status: []int{0, 400, 422, 429, 500}, texts: [][]pattern{wait, re(`too many|exceed|\blimit`)}},

	// The parameters of the requested answer do not concern its length.
	{code: llm.CodeInvalidRequest, status: []int{0, 400, 422}, texts: [][]pattern{reply, limits}, none: ofPrompt},

	// The request is too long, in words and numbers.
	{code: llm.CodeContextLength, not: lasting, texts: [][]pattern{re(`context ?(length|window|size|limit)`), limits}},
	{code: llm.CodeContextLength, not: lasting, texts: [][]pattern{re(`\btokens?\b`), sent, limits}, none: re(`(auth|access|api|bearer|security|session|refresh|invalid|expired|unexpected|special) ?tokens?\b`, `\btokens? (is|was|has) (invalid|expired)`)},
	{code: llm.CodeContextLength, not: lasting, texts: [][]pattern{re(`\btokens?\b`, `context`), sent}, holds: twoNumbers},
	{code: llm.CodeContextLength, not: append(slices.Clone(lasting), 503, 529), texts: [][]pattern{re(`token limit|tokens? (exceeded|exceeds|limit)|exceed\w* (the )?(\w+ )?tokens?\b|too many (input |prompt )?tokens`)}},
	{code: llm.CodeContextLength, not: lasting, texts: [][]pattern{re(
		`\b(prompts?|inputs?|messages|conversation|request|payload|body|entity|sequence|history|context|chat)\b[^.;]{0,60}\b(too (long|large|big)|(longer|larger|bigger|greater) than|over(flow|size))`,
		`\b(prompt|input|sequence|messages?|conversation|request|payload|body) ?(length|size)?\b[^.;]{0,60}(exceed|over the (limit|maximum))`,
		`(maximum|max) (allowed )?(prompt|input|sequence|model|request|payload|body) ?(length|len|size)\b`, `range of input length`, `expected max ?length`, `too long for`,
		`(reduce|shorten|decrease|trim|truncate)\b[^.;]{0,40}\b(prompts?|inputs?|messages?|context|conversation|history)`,
	)}, none: other},
	{code: llm.CodeContextLength, not: lasting, texts: [][]pattern{re(`超过|超出|超长|过长|太长|超限|長すぎ|超過|超えて`), re(`token|上下文|输入|长度|prompt|提示|消息|文本|トークン|コンテキスト|プロンプト|入力`)}},

	{code: llm.CodeAuth, not: transient, fields: []string{
		"invalidapikey", "apikeyinvalid", "authenticationerror", "unauthorized", "unauthenticated", "permissiondenied", "permissionerror", "accessdenied", "accessdeniedexception", "unrecognizedclientexception", "expiredtokenexception", "invalidauthentication", "authorizationerror", "forbidden",
	}},
	{code: llm.CodeAuth, not: transient, texts: [][]pattern{re(
		`(invalid|incorrect|wrong|missing|no|expired|revoked|disabled) (\w+ )?(x )?api ?key|api ?key (\w+ ){0,3}(not valid|invalid|incorrect|expired|missing|not found|revoked|disabled)|authentication ?(error|failed|fails)|unauthori[sz]ed|permission ?(denied|error)|(security )?token (included in the request )?(is|has) (invalid|expired)|not authori[sz]ed|令牌已过期`,
	)}},
	{code: llm.CodeModelNotFound, not: transient, fields: []string{
		"modelnotfound", "modelnotfounderror", "modelnotsupported", "unsupportedmodel", "deploymentnotfound", "modeldecommissioned", "invalidmodel", "unknownmodel", "nosuchmodel", "invalidmodelerror",
	}},
	{code: llm.CodeModelNotFound, not: transient, texts: [][]pattern{re(
		`not ?found error\b.{0,20}\bmodel:|model: [^ ]+ not ?found error|\bmodels?\b.{0,100}(not ?found|does not exist|doesn t exist|not exist|not available|unknown|not (a )?valid|not (a )?valid model|not supported|no longer (available|supported)|decommissioned|is invalid|isn t available)|(not a valid|unknown|no such|invalid|unsupported) model\b|requested model .{0,60}\bnot |deployment (\w+ ){0,6}does not exist|no models loaded|模型不存在`,
	)}},
	{code: llm.CodeTimeout, status: []int{0, 500, 502, 503}, texts: [][]pattern{re(`timed out|time ?out|deadline exceeded`)}},
}

// alone reports whether a text names a rate limit and a larger request, so that the
// request exceeds the limit at any time.
func alone(text string) bool {
	m := alonePattern.FindStringSubmatch(text)
	if m == nil {
		return strings.Contains(text, "too large") && waitIn(text) == 0
	}
	limit, _ := strconv.ParseFloat(m[1], 64)
	asked, _ := strconv.ParseFloat(m[2], 64)
	return asked > limit
}

var alonePattern = regexp.MustCompile(`limit:? ?(?:is )?(\d+)\b.{0,60}?requested:? ?(\d+)\b`)

// twoNumbers reports whether a text compares two plausible token counts.
func twoNumbers(text string) bool {
	found := number.FindAllString(text, -1)
	big := slices.DeleteFunc(found, func(s string) bool { n, err := strconv.ParseFloat(s, 64); return err != nil || n < 100 })
	slices.Sort(big)
	return len(slices.Compact(big)) >= 2
}

var number = regexp.MustCompile(`\b\d{3,12}\b`)

// maxPlain bounds the examined part of a server's text, in bytes.
const maxPlain = 8 << 10

var (
	marks     = regexp.MustCompile(`[^\pL\pN.,:;<>=+%/]+`)
	thousands = regexp.MustCompile(`(\d),(\d{3})\b`)
	// anyRequest are words that occur in any failure, whatever the request or value.
	anyRequest = regexp.MustCompile(`input should be|(invalid|bad) ?request( ?error| ?exception)?\b`)
)

// plain returns a text in the plain form of the classes.
func plain(text string) string {
	text = marks.ReplaceAllString(strings.ToLower(llm.Clip(text, maxPlain)), " ")
	text = strings.TrimSpace(anyRequest.ReplaceAllString(text, " "))
	return thousands.ReplaceAllString(thousands.ReplaceAllString(text, "$1$2"), "$1$2")
}

// field returns a code, type or reason in the form of the classes.
func field(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, strings.ToLower(s))
}

// matches reports whether an answer has the signs of k.
func (k *class) matches(status int, fields []string, text string) bool {
	any := func(list []pattern) bool {
		return slices.ContainsFunc(list, func(p pattern) bool { return p().MatchString(text) })
	}
	switch {
	case len(k.status) > 0 && !slices.Contains(k.status, status), slices.Contains(k.not, status):
		return false
	case len(k.fields) > 0 && !slices.ContainsFunc(k.fields, func(f string) bool { return slices.Contains(fields, f) }):
		return false
	case any(k.none):
		return false
	}
	for _, list := range k.texts {
		if !any(list) {
			return false
		}
	}
	return k.holds == nil || k.holds(text)
}
