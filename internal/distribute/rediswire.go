package distribute

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/redisconn"
)

// keys are the names under which the bus keeps things. The part in braces
// holds them on one shard of a cluster, so that one script may touch several.
type keys struct {
	fence   string // the highest leadership epoch that wrote lately
	docs    [documents]string
	index   string // which enforcers acknowledged, by when that lapses
	acks    string // begins each enforcer's own key
	channel string
}

func newKeys(prefix string) (keys, error) {
	if err := redisconn.CheckPrefix(prefix); err != nil {
		return keys{}, err
	}
	at := prefix + "{bus}:"
	return keys{
		fence: at + "leader", docs: [documents]string{at + "snapshot", at + "overrides"},
		index: at + "acks", acks: at + "ack:", channel: at + "changed",
	}, nil
}

// ack is the key of an enforcer's acknowledgement and its name in the index:
// names are data and may hold anything.
func (k keys) ack(enforcer string) (key, member string) {
	sum := sha256.Sum256([]byte(enforcer))
	member = hex.EncodeToString(sum[:])
	return k.acks + member, member
}

// writeScript enters documents if the writer leads and they are newer, all or
// none, and renews the leader's fence. KEYS: fence, snapshot, overrides. ARGV:
// the writer's epoch, the fence's milliseconds, the channel; then for each
// document version, content, sum, encoding, body, all empty for none. It
// answers "ok" with how many were entered, "fenced" with the leader's epoch,
// "older" with document and version, or "invalid"; but for "ok" nothing changed.
//
// The documents are the only keys without an expiry: an enforcer that starts
// while the control plane is away must find them, however long that lasts.
var writeScript = rueidis.NewLuaScript(`
local digits = string.rep('%d', 20)
local number, version = '^' .. digits .. '$', '^' .. digits .. '%.' .. digits .. '$'
local writer, ttl, channel = ARGV[1], tonumber(ARGV[2]), ARGV[3]
if #KEYS ~= 3 or #ARGV ~= 13 or not string.find(writer, number) or string.find(writer, '^0+$')
  or not ttl or not (ttl >= 1000 and ttl <= 86400000) or channel == '' then
  return {'invalid'}
end
for i = 4, 9, 5 do
  if ARGV[i] ~= '' and (not string.find(ARGV[i], version) or #ARGV[i + 1] ~= 64 or #ARGV[i + 2] ~= 64
    or ARGV[i + 3] == '' or ARGV[i + 4] == '') then
    return {'invalid'}
  end
end
local fence = redis.call('GET', KEYS[1])
if fence and string.find(fence, number) and fence > writer then
  return {'fenced', fence}
end
local newer = {}
for n = 1, 2 do
  local i = 5 * n - 1
  if ARGV[i] ~= '' then
    local have = redis.call('HMGET', KEYS[n + 1], 'version', 'content')
    local known = have[1] and string.find(have[1], version)
    if known and (have[1] > ARGV[i] or (have[1] == ARGV[i] and have[2] ~= ARGV[i + 1])) then
      return {'older', tostring(n - 1), have[1]}
    end
    if not known or have[1] < ARGV[i] then
      newer[#newer + 1] = n
    end
  end
end
redis.call('SET', KEYS[1], writer, 'PX', ttl)
for _, n in ipairs(newer) do
  local i = 5 * n - 1
  redis.call('HSET', KEYS[n + 1], 'version', ARGV[i], 'content', ARGV[i + 1], 'sum', ARGV[i + 2], 'encoding', ARGV[i + 3], 'body', ARGV[i + 4])
end
if #newer > 0 then
  redis.call('PUBLISH', channel, 'changed')
end
return {'ok', tostring(#newer)}
`)

// ackScript keeps an enforcer's word for a time, stamped by Redis's clock.
// KEYS: index, ack. ARGV: member, milliseconds, text, how many enforcers at
// most. It answers "ok", "full" or "invalid".
var ackScript = rueidis.NewLuaScript(`
local member, ttl, text, most = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
if #KEYS ~= 2 or #ARGV ~= 4 or #member ~= 64 or not ttl or not (ttl >= 1 and ttl <= 86400000) or text == '' or not most then
  return {'invalid'}
end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
if redis.call('ZCARD', KEYS[1]) >= most and not redis.call('ZSCORE', KEYS[1], member) then
  return {'full'}
end
redis.call('SET', KEYS[2], t[1] .. string.format('%06d', t[2]) .. ' ' .. text, 'PX', ttl)
redis.call('ZADD', KEYS[1], string.format('%.0f', now + ttl), member)
if redis.call('PTTL', KEYS[1]) < ttl then
  redis.call('PEXPIRE', KEYS[1], ttl)
end
return {'ok'}
`)

// heads are what Redis holds, without the bodies.
type heads struct {
	fence uint64 // 0 for nobody
	docs  [documents]*head
}

// heads reads them. A document that is not ours counts as none.
func (r *Redis) heads(ctx context.Context) (out heads, err error) {
	client, err := r.client(ctx)
	if err != nil {
		return out, err
	}
	call, cancel := context.WithTimeout(ctx, r.config.Timeout)
	defer cancel()
	answers := client.DoMulti(call,
		client.B().Get().Key(r.keys.fence).Build(),
		client.B().Hmget().Key(r.keys.docs[snapshotDoc]).Field("version", "content").Build(),
		client.B().Hmget().Key(r.keys.docs[overridesDoc]).Field("version", "content").Build())
	text, err := answers[0].ToString()
	if err != nil && !rueidis.IsRedisNil(err) {
		return out, r.away(ctx, err)
	}
	out.fence, _ = strconv.ParseUint(text, 10, 64)
	for i := range out.docs {
		fields, err := answers[1+i].AsStrSlice()
		if err != nil {
			return out, r.away(ctx, err)
		}
		if v, err := rlc.ParseVersion(fields[0]); err == nil {
			out.docs[i] = &head{v, fields[1]}
		}
	}
	return out, nil
}

// fetch reads a document into m. It fails with rlc.ErrNotFound where there is
// none, and with rlc.ErrInvalid where it is damaged or too large.
func (r *Redis) fetch(ctx context.Context, doc int, m *Message) error {
	client, err := r.client(ctx)
	if err != nil {
		return err
	}
	call, cancel := context.WithTimeout(ctx, bulk*r.config.Timeout)
	defer cancel()
	key := r.keys.docs[doc]
	size, err := client.Do(call, client.B().Hstrlen().Key(key).Field("body").Build()).AsInt64()
	if err != nil {
		return r.away(ctx, err)
	}
	if size > maxStored {
		return fmt.Errorf("%w: published %s has %d bytes; at most %d are read", rlc.ErrInvalid, documentNames[doc], size, maxStored)
	}
	fields, err := client.Do(call, client.B().Hmget().Key(key).Field("version", "content", "sum", "encoding", "body").Build()).AsStrSlice()
	if err != nil {
		return r.away(ctx, err)
	}
	v, err := rlc.ParseVersion(fields[0])
	if err != nil {
		return fmt.Errorf("published %s: %w", documentNames[doc], rlc.ErrNotFound)
	}
	d := document{head: head{v, fields[1]}, sum: fields[2], encoding: fields[3], body: []byte(fields[4])}
	return d.unpack(doc, m)
}

// write runs writeScript.
func (r *Redis) write(ctx context.Context, writer uint64, next [documents]*document) error {
	client, err := r.client(ctx)
	if err != nil {
		return err
	}
	call, cancel := context.WithTimeout(ctx, bulk*r.config.Timeout)
	defer cancel()
	args := []string{padded(writer), strconv.FormatInt(fenceTTL.Milliseconds(), 10), r.keys.channel}
	for _, d := range next {
		if d == nil {
			args = append(args, "", "", "", "", "")
			continue
		}
		args = append(args, paddedVersion(d.version), d.content, d.sum, d.encoding, rueidis.BinaryString(d.body))
	}
	answer, err := writeScript.Exec(call, client, append([]string{r.keys.fence}, r.keys.docs[:]...), args).AsStrSlice()
	if err != nil {
		return r.away(ctx, err)
	}
	switch {
	case len(answer) == 2 && answer[0] == "ok":
		return nil
	case len(answer) == 2 && answer[0] == "fenced":
		return fmt.Errorf("%w: epoch %d, and %s leads", rlc.ErrFenced, writer, strings.TrimLeft(answer[1], "0"))
	case len(answer) == 3 && answer[0] == "older":
		doc, err1 := strconv.Atoi(answer[1])
		v, err2 := rlc.ParseVersion(answer[2])
		if err := errors.Join(err1, err2); err == nil && doc >= 0 && doc < documents && next[doc] != nil {
			return fmt.Errorf("%w: %s %s does not follow %s, which is published", rlc.ErrConflict, next[doc].name, next[doc].version, v)
		}
	}
	return fmt.Errorf("redis at %s: %w: it answered %.100q to a write", r.conn.Addr(), rlc.ErrInvalid, answer)
}

// acknowledge keeps a for AckTTL.
func (r *Redis) acknowledge(ctx context.Context, a rlc.Ack) error {
	text, err := encodeAck(a)
	if err != nil {
		return err
	}
	client, err := r.client(ctx)
	if err != nil {
		return err
	}
	call, cancel := context.WithTimeout(ctx, r.config.Timeout)
	defer cancel()
	key, member := r.keys.ack(a.Enforcer)
	answer, err := ackScript.Exec(call, client, []string{r.keys.index, key},
		[]string{member, strconv.FormatInt(r.config.AckTTL.Milliseconds(), 10), text, strconv.Itoa(maxEnforcers)}).AsStrSlice()
	if err != nil {
		return r.away(ctx, err)
	}
	if len(answer) != 1 || answer[0] != "ok" {
		return fmt.Errorf("redis at %s: %w: it answered %.100q to an acknowledgement (at most %d enforcers)", r.conn.Addr(), rlc.ErrRefused, answer, maxEnforcers)
	}
	return nil
}

// ackValues reads what enforcers said. One that lapsed is left out.
func (r *Redis) ackValues(ctx context.Context) ([]string, error) {
	client, err := r.client(ctx)
	if err != nil {
		return nil, err
	}
	call, cancel := context.WithTimeout(ctx, bulk*r.config.Timeout)
	defer cancel()
	members, err := client.Do(call, client.B().Zrange().Key(r.keys.index).Min("0").Max(strconv.Itoa(maxEnforcers-1)).Build()).AsStrSlice()
	if err != nil {
		return nil, r.away(ctx, err)
	}
	var out []string
	const atOnce = 500
	for len(members) > 0 {
		n := min(atOnce, len(members))
		names := make([]string, n)
		for i, m := range members[:n] {
			names[i] = r.keys.acks + m
		}
		members = members[n:]
		values, err := client.Do(call, client.B().Mget().Key(names...).Build()).ToArray()
		if err != nil {
			return nil, r.away(ctx, err)
		}
		for i := range values {
			if v, err := values[i].ToString(); err == nil {
				out = append(out, v)
			}
		}
	}
	return out, nil
}

// bulk is how many times Config.Timeout a call with a document may take.
const bulk = 5

// client connects if need be.
func (r *Redis) client(ctx context.Context) (rueidis.Client, error) {
	call, cancel := context.WithTimeout(ctx, r.config.Timeout)
	defer cancel()
	c, err := r.conn.Client(call)
	if err != nil {
		return nil, r.away(ctx, err)
	}
	return c, nil
}

// tune makes room for few small calls: one connection with small buffers.
func tune(o *rueidis.ClientOption) {
	o.PipelineMultiplex = -1
	o.RingScaleEachConn = 8
	o.ReadBufferEachConn = 32 << 10
	o.WriteBufferEachConn = 32 << 10
}
