package exchange

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/llm"
)

// said is a failed answer of a server: a status, 0 for an error in a stream, and a
// body; and the wait that it requests.
type said struct {
	status int
	body   string
	wait   time.Duration
}

// text is the body of OpenAI's form around a message.
func text(message string) string {
	data, _ := json.Marshal(map[string]any{"error": map[string]any{"message": message, "type": "invalid_request_error"}})
	return string(data)
}

// byClass are answers of real servers, as they are documented or reported, by their class.
var byClass = map[llm.Code][]said{
	llm.CodeContextLength: {
		// OpenAI, Azure, and their imitators.
		{400, `{"error":{"message":"This model's maximum context length is 128000 tokens. However, your messages resulted in 131072 tokens. Please reduce the length of the messages.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`, 0},
		{400, `{"error":{"message":"Your input exceeds the context window of this model. Please adjust your input and try again.","type":"invalid_request_error","param":"input","code":"context_length_exceeded"}}`, 0},
		{0, `{"type":"error","error":{"type":"invalid_request_error","code":"context_length_exceeded","message":"Your input exceeds the context window of this model."}}`, 0},
		{400, text("Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 509178 tokens. Please reduce the length of the messages."), 0},
		{400, text("This model's maximum context length is 4097 tokens, however you requested 5762 tokens (5506 in your prompt; 256 for the completion). Please reduce your prompt; or completion length."), 0},
		{400, `{"error":{"message":"Invalid 'messages[3].content': string too long. Expected a string with maximum length 1048576, but instead got a string with length 2000000.","type":"invalid_request_error","param":"messages[3].content","code":"string_above_max_length"}}`, 0},
		{429, `{"error":{"message":"Request too large for gpt-4 in organization org-1 on tokens per min (TPM): Limit 10000, Requested 12000. The input or output tokens must be reduced in order to run successfully.","type":"tokens","param":null,"code":"rate_limit_exceeded"}}`, 0},
		{400, text("'max_tokens' or 'max_completion_tokens' is too large: 2000. This model's maximum context length is 4096 tokens and your request has 2104 input tokens (2000 > 4096 - 2104)."), 0},
		// Anthropic, Vertex, Bedrock.
		{400, `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 213462 tokens > 200000 maximum"}}`, 0},
		{400, `{"type":"error","error":{"type":"invalid_request_error","message":"input length and ` + "`max_tokens`" + ` exceed context limit: 190000 + 20000 > 200000, decrease input length or ` + "`max_tokens`" + ` and try again"}}`, 0},
		{413, `{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum allowed number of bytes."}}`, 0},
		{400, `{"message":"Input is too long for requested model."}`, 0},
		{400, `{"__type":"ValidationException","message":"The model returned the following errors: Input is too long for requested model."}`, 0},
		{400, `{"message":"Too many input tokens. Max input tokens: 128000, request input token count: 140321"}`, 0},
		{400, `{"message":"Malformed input request: expected maxLength: 50000, actual: 51234, please reformat your input and try again."}`, 0},
		{0, `{"message":"The number of input tokens exceeds maximum length","type":"validationException"}`, 0},
		{400, `{"message":"This model's maximum context length is 8192 tokens. Please reduce the length of the prompt"}`, 0},
		// Google.
		{400, `[{"error":{"code":400,"message":"The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).","status":"INVALID_ARGUMENT"}}]`, 0},
		{400, `{"error":{"code":400,"message":"Unable to submit request because the input token count is 1044000 but model only supports up to 32768. Reduce the input token count and try again.","status":"INVALID_ARGUMENT"}}`, 0},
		{400, `{"error":{"code":400,"message":"The input context is too long for this model.","status":"INVALID_ARGUMENT"}}`, 0},
		// Hosts of open models.
		{400, `{"code":"Client specified an invalid argument","error":"This model's maximum prompt length is 131072 but the request contains 537812 tokens."}`, 0},
		{400, `{"error":{"type":"invalid_request_error","message":"Invalid request: Your request exceeded model token limit: 262144 (requested: 300123)"}}`, 0},
		{400, `{"error":{"message":"prompt token count of 140000 exceeds the limit of 128000","code":"model_max_prompt_tokens_exceeded"}}`, 0},
		{413, `{"error":{"message":"Request too large for model ` + "`x`" + ` on tokens per minute (TPM): Limit 6000, Requested 9000, please reduce your message size and try again.","type":"tokens","code":"rate_limit_exceeded"}}`, 0},
		{400, `{"error":{"message":"Please reduce the length of the messages or completion.","type":"invalid_request_error","param":"messages"}}`, 0},
		{400, `{"message":"Please reduce the length of the messages or completion. Current length is 9011 while limit is 8192","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}`, 0},
		{400, `{"object":"error","message":{"detail":[{"msg":"Prompt contains 140000 tokens and 0 draft tokens, too large for model with 131072 maximum context length"}]},"type":"invalid_request_prompt","code":"3051"}`, 0},
		{400, `{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"{\"error\":{\"message\":\"This endpoint's maximum context length is 128000 tokens. However, you requested about 140000 tokens (139000 of text input, 1000 in the output).\"}}","provider_name":"X"}}}`, 0},
		{400, text("This endpoint's maximum context length is 32768 tokens. However, you requested about 40000 tokens (35000 of text input, 5000 of tool input). Please reduce the length of either one, or use the \"middle-out\" transform."), 0},
		{422, `{"error":{"message":"Input validation error: ` + "`inputs` tokens + `max_new_tokens`" + ` must be <= 32769. Given: 33717 ` + "`inputs` tokens and 256 `max_new_tokens`" + `","type":"invalid_request_error"}}`, 0},
		{422, `{"error":"Input validation error: ` + "`inputs`" + ` must have less than 1024 tokens. Given: 2011","error_type":"validation"}`, 0},
		{400, text("The prompt is too long: 140000, model maximum context length: 131071"), 0},
		{400, text("This model's maximum context length is 65536 tokens. However, you requested 71234 tokens (67138 in the messages, 4096 in the completion). Please reduce the length of the messages or completion."), 0},
		{400, `{"message":"too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5012. Try using a shorter prompt, or enabling prompt truncating."}`, 0},
		{400, `{"error":{"code":"InvalidParameter","message":"InternalError.Algo.InvalidParameter: Range of input length should be [1, 129024]"}}`, 0},
		{400, `{"error":{"message":"<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 983616]","type":"invalid_request_error","code":"invalid_parameter_error"}}`, 0},
		{400, `{"error":{"code":"1261","message":"Prompt exceeds max length"}}`, 0},
		{400, `{"error":{"code":"1261","message":"Prompt 超长"}}`, 0},
		{400, `{"error":{"message":"输入的 tokens 数超过模型上限","code":"invalid_parameter"}}`, 0},
		{400, `{"type":"error","error":{"type":"bad_request_error","message":"invalid params, context window exceeds limit (2013)","http_code":"400"}}`, 0},
		{0, `{"base_resp":{"status_code":2013,"status_msg":"invalid params, context window exceeds limit"}}`, 0},
		{400, `{"error":{"message":"The total length of all messages is too long.","type":"bad_request"}}`, 0},
		{400, `{"code":20015,"message":"length of prompt_tokens (33000) must be less than max_seq_len (32768).","data":null}`, 0},
		{400, `{"error":{"code":"invalid_parameter","message":"Requested generation length 1 is not possible! The provided prompt is 5000 tokens long, so generating 1 tokens requires a sequence length of 5001, but the maximum supported sequence length is just 4096!"}}`, 0},
		{400, `{"error_code":"BAD_REQUEST","message":"Input is too long: 140000 tokens, limit 131072"}`, 0},
		{413, `{"error":{"code":"tokens_limit_reached","message":"Request body too large for gpt-4o model. Max size: 8000 tokens.","details":"Request body too large for gpt-4o model. Max size: 8000 tokens."}}`, 0},
		{413, `{"errors":[{"message":"AiError: AiError: The estimated number of input and maximum output tokens (35000) exceeded this model context window limit (24000).","code":5021}],"success":false,"result":{},"messages":[]}`, 0},
		{400, text("Requested token count exceeds the model's maximum context length of 256000 tokens. You requested a total of 256800 tokens: 224800 tokens from the input messages and 32000 tokens for the completion. Please reduce the number of tokens."), 0},
		{400, `{"error":{"message":"the number of input tokens 5000 cannot exceed the total tokens limit 4096 for this model","code":"invalid_input_argument"}}`, 0},
		{400, `{"error_code":336103,"error_msg":"prompt tokens too long"}`, 0},
		{400, `{"error":{"code":"InvalidParameter","message":"Input length 140321 exceeds the maximum length 131072. Request id: 0217"}}`, 0},
		{400, text("Total tokens of image and text exceed max message tokens."), 0},
		{400, `{"message":"max tokens of 8192 exceeded by the prompt","request_id":"x"}`, 0},
		// Servers of one's own.
		{400, `{"object":"error","message":"This model's maximum context length is 32768 tokens. However, you requested 40000 tokens in the messages, Please reduce the length of the messages.","type":"BadRequestError","param":null,"code":400}`, 0},
		{400, `{"object":"error","message":"The decoder prompt (length 5951) is longer than the maximum model length of 4096. Make sure that max_model_len is no smaller than the number of text tokens.","type":"BadRequestError","code":400}`, 0},
		{400, `{"object":"error","message":"The input (40123 tokens) is longer than the model's context length (32768 tokens).","type":"BadRequestError","code":400}`, 0},
		{400, `{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it","type":"exceed_context_size_error","n_prompt_tokens":9011,"n_ctx":8192}}`, 0},
		{500, `{"error":{"code":500,"message":"context shift is disabled, context size exceeded","type":"server_error"}}`, 0},
		{400, `{"error":{"message":"prompt too long; exceeded max context length by 1200 tokens","type":"invalid_request_error"}}`, 0},
		{500, `{"error":"the input length exceeds the context length"}`, 0},
		{400, `{"error":"Trying to keep the first 40000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough. Try to load the model with a larger context length, or provide a shorter input"}`, 0},
		{0, "event: error\ndata: {\"error\":{\"message\":\"The number of tokens to keep from the initial prompt is greater than the context length. Try to load the model with a larger context length, or provide a shorter input\"}}", 0},
		{400, `{"error":"Requested tokens (9011) exceed context window of 8192"}`, 0},
		{400, `{"error":"Prompt has 33001 tokens, but the configured context size is 32768 tokens"}`, 0},
		{400, `{"error":"Prompt is 11543 tokens but the model context window is 4096 tokens."}`, 0},
		{400, `{"message":"prompt length (9011) exceeds maximum input length (8192). Set log level to info for request details"}`, 0},
		{422, `{"detail":"Request (9011 tokens) exceeds context limit (8192 tokens)"}`, 0},
		{400, `{"detail":[{"loc":["body","messages"],"msg":"Conversation is longer than 8192 tokens","type":"value_error"}]}`, 0},
		// Gateways.
		{413, "<html><head><title>413 Request Entity Too Large</title></head><body><center><h1>413 Request Entity Too Large</h1></center><hr><center>nginx</center></body></html>", 0},
		{413, "", 0},
		{413, "Payload Too Large", 0},
		{400, `{"error":{"message":"litellm.ContextWindowExceededError: AnthropicException - {\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"prompt is too long: 209303 tokens > 200000 maximum\"}}","type":null,"param":null,"code":"400"}}`, 0},
		{500, `{"error":{"message":"prompt is too long: 209,303 tokens > 200,000 maximum","type":"server_error"}}`, 0},
		{400, "prompt is too long: 209303 tokens > 200000 maximum", 0},
	},
	llm.CodeRateLimited: {
		{429, `{"error":{"message":"Rate limit reached for gpt-4o in organization org-1 on tokens per min (TPM): Limit 30000, Used 29500, Requested 1200. Please try again in 1.4s. Visit https://platform.openai.com/account/rate-limits to learn more.","type":"tokens","param":null,"code":"rate_limit_exceeded"}}`, 1400 * time.Millisecond},
		{0, `{"error":{"message":"Rate limit reached for m on tokens per min (TPM): Limit 6000, Used 5800, Requested 900. Please try again in 6.2s.","type":"tokens","code":"rate_limit_exceeded"}}`, 6200 * time.Millisecond},
		{0, `{"type":"response.failed","error":{"code":"rate_limit_exceeded","message":"Rate limit reached on tokens per min: Limit 40000, Used 39000, Requested 5000. Please try again in 250ms."}}`, 250 * time.Millisecond},
		{429, `{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed your organization's rate limit of 40,000 input tokens per minute. For details, refer to: https://docs.claude.com. Please reduce the prompt length or the maximum tokens requested, or try again later."}}`, 0},
		{503, `{"error":{"message":"Too many tokens, please wait before trying again.","type":"ThrottlingException"}}`, 0},
		{429, `{"message":"Too many tokens, please wait before trying again."}`, 0},
		{0, `{"message":"Too many tokens, please wait before trying again."}`, 0},
		{400, `{"__type":"com.amazon.coral.service#ThrottlingException","message":"Too many tokens per day, please wait before trying again."}`, 0},
		{0, `{"error":{"message":"Too many tokens in the last minute"}}`, 0},
		{503, `{"error":{"message":"You have sent too many tokens in the last 60 seconds; the maximum is 100000 tokens per minute."}}`, 0},
		{0, `{"error":{"message":"Input tokens per minute limit exceeded: 120000 of 100000 tokens","type":"tokens"}}`, 0},
		{503, `{"error":{"message":"TPM limit exceeded: the maximum number of tokens for your prompt tier is 100000","code":503}}`, 0},
		{400, `{"error":{"message":"Requests have exceeded the token rate limit of your current pricing tier. Please retry after 20 seconds.","code":"400"}}`, 20 * time.Second},
		{429, `{"error":{"code":"429","message":"Requests to the ChatCompletions_Create Operation under Azure OpenAI API have exceeded token rate limit of your current OpenAI S0 pricing tier. Please retry after 26 seconds."}}`, 26 * time.Second},
		{429, `[{"error":{"code":429,"message":"You exceeded your current quota, please check your plan and billing details. For more information on this error, head to: https://ai.google.dev/gemini-api/docs/rate-limits.\n* Quota exceeded for metric: generativelanguage.googleapis.com/generate_content_free_tier_input_token_count, limit: 125000\nPlease retry in 34.074824224s.","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34s"}]}}]`, 34 * time.Second},
		{429, `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"Resource has been exhausted (e.g. check quota).","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":{"seconds":6,"nanos":500000000}}]}}`, 6500 * time.Millisecond},
		{429, `{"error":{"code":"RateLimitReached","message":"Rate limit of 10 per 60s exceeded for UserByModelByMinute. Please wait 38 seconds before retrying.","details":"Rate limit of 10 per 60s exceeded"}}`, 38 * time.Second},
		{429, `{"error":{"message":"Provider returned error","code":429,"metadata":{"raw":"x is temporarily rate-limited upstream. Please retry shortly.","provider_name":"X"}}}`, 0},
		{429, `{"error":{"message":"Rate limit exceeded: free-models-per-min.","code":429,"metadata":{"headers":{"X-RateLimit-Limit":"20","X-RateLimit-Remaining":"0","retry-after":"12"}}}}`, 12 * time.Second},
		{429, `{"message":"Requests rate limit exceeded","type":"rate_limited","retry_after":3}`, 3 * time.Second},
		{429, `{"error":{"message":"slow down","retry_after_ms":1500}}`, 1500 * time.Millisecond},
		{429, `{"error":{"code":"1302","message":"您当前使用该API的并发数过高，请6秒后重试"}}`, 6 * time.Second},
		{400, `{"error_code":336502,"error_msg":"tokens per minute rate limit reached"}`, 0},
		{0, `{"choices":[],"error":{"code":429,"message":"Worker total request limit reached"}}`, 0},
		{500, `{"error":{"message":"litellm.RateLimitError: too many requests","code":"429"}}`, 0},
		{429, `{"error":{"message":"Limit reached. Try again in 1m6s"}}`, 66 * time.Second},
		{429, `{"error":{"message":"Please try again in 7m12.5s."}}`, 432500 * time.Millisecond},
		{429, `{"error":{"message":"Please wait 2 minutes and 5 seconds."}}`, 125 * time.Second},
		{403, `{"message":"API rate limit exceeded for user ID 1."}`, 0},
	},
	llm.CodeOverloaded: {
		{529, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, 0},
		{503, `{"error":{"code":503,"message":"The model is overloaded. Please try again later.","status":"UNAVAILABLE"}}`, 0},
		{503, `{"error":{"code":503,"message":"This model is currently experiencing high demand. Spikes in demand are usually temporary. Please try again later.","status":"UNAVAILABLE"}}`, 0},
		{503, `{"error":"Model x is currently loading","estimated_time":20.5}`, 20500 * time.Millisecond},
		{503, `{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}`, 0},
		{503, `{"error":"server busy, please try again.  maximum pending requests exceeded"}`, 0},
		{429, `{"error":{"type":"engine_overloaded_error","message":"The engine is currently overloaded, please try again later"}}`, 0},
		{0, `{"error":{"message":"The server is busy. Please try again later."}}`, 0},
		{503, "no healthy upstream", 0},
	},
	llm.CodeInvalidRequest: {
		{400, text("max_tokens is too large: 100000. This model supports at most 16384 completion tokens, whereas you provided 100000."), 0},
		{400, `{"type":"error","error":{"type":"invalid_request_error","message":"max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens for claude-sonnet-4-5"}}`, 0},
		{400, `{"message":"The maximum tokens you requested exceeds the model limit of 4096. Try again with a maximum tokens value that is lower than 4096."}`, 0},
		{400, `{"error":{"message":"Range of max_tokens should be [1, 8192]","code":"InvalidParameter"}}`, 0},
		{400, `{"type":"error","error":{"type":"invalid_request_error","message":"` + "`max_tokens` must be greater than `thinking.budget_tokens`" + `"}}`, 0},
		{400, `{"type":"error","error":{"type":"invalid_request_error","message":"thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"}}`, 0},
		{400, `{"type":"error","error":{"type":"invalid_request_error","message":"messages.5.content.0.image.source.base64: image exceeds 5 MB maximum: 6291456 bytes > 5242880 bytes"}}`, 0},
		{400, `{"type":"error","error":{"type":"invalid_request_error","message":"tools.0.custom.name: String should have at most 64 characters"}}`, 0},
		{400, `{"error":{"message":"Invalid 'tools[0].function.name': string too long. Expected a string with maximum length 64, but got a string with length 71 instead.","type":"invalid_request_error","param":"tools[0].function.name","code":"string_above_max_length"}}`, 0},
		{400, text("Invalid 'user': string too long. Expected a string with maximum length 64, but got a string with length 80 instead."), 0},
		{400, text("Invalid 'tools': array too long. Expected an array with maximum length 128, but got an array with length 200 instead."), 0},
		{400, text("temperature: Input should be less than or equal to 1"), 0},
		{400, text("Unrecognized request argument supplied: reasoning_effort"), 0},
		{400, text("Messages with role 'tool' must be a response to a preceding message with 'tool_calls'."), 0},
		{400, text("messages: roles must alternate between user and assistant"), 0},
		{422, `{"detail":[{"loc":["body","messages"],"msg":"field required","type":"value_error.missing"}]}`, 0},
		{400, `{"error":{"code":400,"message":"Invalid JSON payload received. Unknown name \"$schema\" at 'tools[0].function_declarations[0].parameters': Cannot find field.","status":"INVALID_ARGUMENT"}}`, 0},
		{400, text("Unexpected token '<' in JSON at position 0 of the request body"), 0},
	},
	llm.CodeQuota: {
		{429, `{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`, 0},
		{400, `{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits."}}`, 0},
		{400, `{"type":"error","error":{"type":"invalid_request_error","message":"You have reached your specified API usage limits. You will regain access on 2026-12-01 at 00:00 UTC."}}`, 0},
		{402, `{"error":{"message":"Insufficient Balance","type":"unknown_error","code":"invalid_request_error"}}`, 0},
		{402, `{"error":{"message":"This request requires more credits, or fewer max_tokens. You requested up to 65536 tokens, but can only afford 1234.","code":402}}`, 0},
		{429, `{"error":{"message":"Your account org-1 is suspended, please check your plan and billing details","type":"exceeded_current_quota_error"}}`, 0},
		{400, `{"error":{"code":"Arrearage","message":"Access denied, please make sure your account is in good standing."}}`, 0},
		{429, `{"error":{"code":"1113","message":"您的账户已欠费，请充值后重试。余额不足"}}`, 0},
		{0, `{"base_resp":{"status_code":1008,"status_msg":"insufficient balance"}}`, 0},
		{403, `{"code":403,"reason":"NOT_ENOUGH_BALANCE","message":"not enough balance"}`, 0},
		{429, `{"code":"Some resource has been exhausted","error":"Your team has either used all available credits or reached its monthly spending limit."}`, 0},
	},
	llm.CodeAuth: {
		{401, `{"error":{"message":"Incorrect API key provided","type":"invalid_request_error","code":"invalid_api_key"}}`, 0},
		{400, `{"code":"Client specified an invalid argument","error":"Incorrect API key provided: xx. You can obtain an API key from https://console.x.ai."}`, 0},
		{400, `[{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID","domain":"googleapis.com"}]}}]`, 0},
		{400, text("API key expired. Please renew the API key."), 0},
		{403, `{"message":"The security token included in the request is invalid."}`, 0},
		{403, `{"__type":"ExpiredTokenException","message":"The security token included in the request is expired"}`, 0},
		{0, `{"type":"error","error":{"type":"permission_error","message":"not for you"}}`, 0},
		{401, `{"error":{"code":"1000","message":"令牌已过期或验证不正确"}}`, 0},
		{401, "Unauthorized", 0},
	},
	llm.CodeRefused: {
		{400, `{"error":{"message":"The response was filtered due to the prompt triggering Azure OpenAI's content management policy.","type":null,"param":"prompt","code":"content_filter","status":400,"innererror":{"code":"ResponsibleAIPolicyViolation"}}}`, 0},
		{400, `{"error":{"code":"data_inspection_failed","message":"Output data may contain inappropriate content."}}`, 0},
		{400, `{"error":{"code":"1301","message":"系统检测到输入或生成内容可能包含不安全或敏感内容"}}`, 0},
		{400, `{"error":{"message":"The request was rejected because it was considered high risk","type":"content_filter"}}`, 0},
		{400, `{"error":{"message":"Content Exists Risk","type":"invalid_request_error","code":"invalid_request_error"}}`, 0},
		{403, `{"code":"The caller does not have permission to execute the specified operation","error":"Content violates usage guidelines. Failed check: SAFETY_CHECK_TYPE_CSAM"}`, 0},
		{400, `{"error":{"message":"Invalid prompt: your prompt was flagged as potentially violating our usage policy.","type":"invalid_request_error","code":"invalid_prompt"}}`, 0},
		{400, `{"type":"error","error":{"type":"invalid_request_error","message":"Output blocked by content filtering policy"}}`, 0},
		{403, `{"error":{"code":403,"message":"x requires moderation. Your input was flagged for \"violence\". No credits were charged.","metadata":{"reasons":["violence"]}}}`, 0},
	},
	llm.CodeModelNotFound: {
		{404, `{"error":{"message":"The model ` + "`gpt-9`" + ` does not exist or you do not have access to it.","type":"invalid_request_error","param":null,"code":"model_not_found"}}`, 0},
		{404, `{"type":"error","error":{"type":"not_found_error","message":"model: claude-none"}}`, 0},
		{404, `{"error":{"code":404,"message":"models/gemini-9 is not found for API version v1main, or is not supported for generateContent.","status":"NOT_FOUND"}}`, 0},
		{404, `{"error":{"message":"model \"x\" not found, try pulling it first","type":"api_error"}}`, 0},
		{400, `{"error":{"message":"x/y is not a valid model ID","code":400}}`, 0},
		{400, `{"error":{"message":"Model Not Exist","type":"invalid_request_error","code":"invalid_request_error"}}`, 0},
		{404, `{"error":{"code":"DeploymentNotFound","message":"The API deployment for this resource does not exist. If you created the deployment within the last 5 minutes, please wait a moment and try again."}}`, 0},
		{400, `{"message":"The provided model identifier is invalid."}`, 0},
		{400, `{"error":{"code":"1211","message":"Unknown Model, please check the model code."}}`, 0},
		{400, `{"error":{"message":"The model ` + "`x`" + ` has been decommissioned and is no longer supported.","type":"invalid_request_error","code":"model_decommissioned"}}`, 0},
		{400, `{"error":{"message":"The requested model is not supported.","code":"model_not_supported"}}`, 0},
	},
	llm.CodeTimeout: {
		{504, "<html><head><title>504 Gateway Time-out</title></head></html>", 0},
		{500, `{"error":"context deadline exceeded"}`, 0},
		{408, `{"error":{"message":"Request timed out"}}`, 0},
		{0, `{"error":{"message":"Request timed out."}}`, 0},
	},
	llm.CodeUnavailable: {
		{500, `{"type":"error","error":{"type":"api_error","message":"Internal server error"}}`, 0},
		{502, "<html><head><title>502 Bad Gateway</title></head></html>", 0},
		{0, `{"error":{"message":"engine died","type":"server_error","code":500}}`, 0},
		{0, `"upstream connect error or disconnect/reset before headers"`, 0},
	},
}

// TestClasses: the failures of real servers get their classes, in the body of an answer
// as in a stream, and their wordings of a wait are understood.
func TestClasses(t *testing.T) {
	e := &Endpoint{Model: "m", Host: "h"}
	for want, all := range byClass {
		for _, s := range all {
			kind := "application/json"
			if s.body == "" || s.body[0] != '{' && s.body[0] != '[' {
				kind = "text/plain"
			}
			err := e.serverError(s.status, http.Header{"Content-Type": {kind}}, []byte(s.body))
			if err.Code != want {
				t.Errorf("%d %s\nis %s, want %s", s.status, s.body, err.Code, want)
			}
			if err.RetryAfter != s.wait {
				t.Errorf("%d %s\nasks for %v, want %v", s.status, s.body, err.RetryAfter, s.wait)
			}
		}
	}
}

// TestWaits: headers state the wait in many forms. A reset of a limit that is not
// exhausted is ignored, and no header causes a wait of more than a minute.
func TestWaits(t *testing.T) {
	now := time.Now()
	e := &Endpoint{Model: "m", Host: "h"}
	for _, tt := range []struct {
		name   string
		status int
		header []string
		body   string
		want   time.Duration
	}{
		{"seconds", 429, []string{"Retry-After", "20"}, "", 20 * time.Second},
		{"parts of a second", 429, []string{"Retry-After", "0.5"}, "", 500 * time.Millisecond},
		{"milliseconds", 429, []string{"Retry-After", "20", "Retry-After-Ms", "1500"}, "", 1500 * time.Millisecond},
		{"Azure's", 429, []string{"X-Ms-Retry-After-Ms", "2500"}, "", 2500 * time.Millisecond},
		{"a duration", 429, []string{"Retry-After", "1m6s"}, "", 66 * time.Second},
		{"nonsense", 429, []string{"Retry-After", "soon"}, "", 0},
		{"negative", 429, []string{"Retry-After", "-5"}, "", 0},
		{"beyond all", 429, []string{"Retry-After", "1e300"}, "", 0},
		{"a past date", 429, []string{"Retry-After", "Mon, 02 Jan 2006 15:04:05 GMT"}, "", 0},
		{"0, and the body says more", 429, []string{"Retry-After", "0"}, `{"error":{"message":"try again in 6s"}}`, 6 * time.Second},
		{"resets of requests", 429, []string{"X-Ratelimit-Reset-Requests", "6s", "X-Ratelimit-Remaining-Requests", "0"}, "", 6 * time.Second},
		{"resets of what is left", 429, []string{"X-Ratelimit-Reset-Requests", "50s", "X-Ratelimit-Remaining-Requests", "7", "X-Ratelimit-Reset-Tokens", "7.66s", "X-Ratelimit-Remaining-Tokens", "0"}, "", 7660 * time.Millisecond},
		{"a reset in minutes", 429, []string{"X-Ratelimit-Reset-Tokens", "6m0s"}, "", time.Minute},
		{"a reset at once", 429, []string{"X-Ratelimit-Reset-Tokens", "6ms"}, "", time.Second},
		{"a reset in seconds", 429, []string{"Ratelimit-Reset", "12"}, "", 12 * time.Second},
		{"a reset of another failure", 400, []string{"X-Ratelimit-Reset-Requests", "6s"}, "", 0},
		{"nothing", 429, nil, "", 0},
	} {
		h := http.Header{}
		for i := 0; i < len(tt.header); i += 2 {
			h.Set(tt.header[i], tt.header[i+1])
		}
		if err := e.serverError(tt.status, h, []byte(tt.body)); err.RetryAfter != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, err.RetryAfter, tt.want)
		}
	}
	for name, v := range map[string]string{
		"a date": now.Add(10 * time.Second).UTC().Format(http.TimeFormat), "seconds since 1970": strconv.FormatInt(now.Add(10*time.Second).Unix(), 10),
		"milliseconds since 1970": strconv.FormatInt(now.Add(10*time.Second).UnixMilli(), 10), "RFC 3339": now.Add(10 * time.Second).UTC().Format(time.RFC3339),
	} {
		for _, header := range []string{"Retry-After", "X-Ratelimit-Reset"} {
			got := e.serverError(429, http.Header{header: {v}}, nil).RetryAfter
			if got < 8*time.Second || got > 10*time.Second {
				t.Errorf("%s as %s: %v", header, name, got)
			}
		}
	}
}

// TestFailureRules: the rules of a provider go before the classes, and each sign counts.
func TestFailureRules(t *testing.T) {
	rules := []llm.FailureRule{
		{Code: llm.CodeContextLength, Status: []int{418}},
		{Code: llm.CodeContextLength, Status: []int{400}, Words: []string{"zu lang"}},
		{Code: llm.CodeRateLimited, Codes: []string{"E42", "77"}},
		{Code: llm.CodeOverloaded, Regex: []string{`^worker \d+ sleeps`}},
	}
	for i := range rules {
		must.Report(t, rules[i].Validate())
	}
	e := &Endpoint{Model: "m", Host: "h", failures: rules}
	for body, want := range map[string]llm.Code{
		`418 `: llm.CodeContextLength,
		`400 {"error":{"message":"Die Anfrage ist ZU LANG"}}`:                    llm.CodeContextLength,
		`500 {"error":{"message":"Die Anfrage ist zu lang"}}`:                    llm.CodeUnavailable,
		`400 {"error":{"message":"no","code":"e42"}}`:                            llm.CodeRateLimited,
		`400 {"error":{"message":"no","code":77}}`:                               llm.CodeRateLimited,
		`400 {"error":{"message":"Worker 12 sleeps"}}`:                           llm.CodeOverloaded,
		`400 {"error":{"message":"x: worker 12 sleeps"}}`:                        llm.CodeInvalidRequest,
		`429 {"error":{"message":"context length","code":"insufficient_quota"}}`: llm.CodeQuota,
	} {
		status, _ := strconv.Atoi(body[:3])
		if err := e.serverError(status, nil, []byte(body[4:])); err.Code != want {
			t.Errorf("%s is %s, want %s", body, err.Code, want)
		}
	}
}

// FuzzFailure: any failure has a class, and causes no wait beyond the bound.
func FuzzFailure(f *testing.F) {
	for _, all := range byClass {
		for _, s := range all {
			f.Add(s.status, []byte(s.body), "1m6s")
		}
	}
	e := &Endpoint{Model: "m", Host: "h"}
	known := llm.Codes()
	f.Fuzz(func(t *testing.T, status int, body []byte, after string) {
		err := e.serverError(status, http.Header{"Retry-After": {after}, "X-Ratelimit-Reset-Tokens": {after}}, body)
		if err.RetryAfter < 0 || err.RetryAfter > maxAsked || len(err.Message) > 1000 || status != 200 && !slices.Contains(known, err.Code) && (status < 200 || status > 299) {
			t.Errorf("%s, %v: %s", err.Code, err.RetryAfter, err.Message)
		}
	})
}
